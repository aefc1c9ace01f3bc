// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/seed81659283/nodeagent/cri"
)

// op is one call: its CRI name, the object it is about, and what it may take beyond its time limit.
type op struct {
	name  string
	id    string
	extra time.Duration
}

// call makes one call within its time limit and names it in the error.
func call[Q, A any](
	ctx context.Context, c *Client, o op, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (A, error) {
	if d := c.limit(o); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	began := time.Now()
	answer, err := rpc(ctx, request)
	c.tell(o, began, err)
	if err != nil {
		return answer, o.fail(err)
	}
	return answer, nil
}

// tell tells of a call that has ended.
func (c *Client) tell(o op, began time.Time, err error) {
	if c.called != nil {
		c.called(o.name, time.Since(began), err)
	}
}

// limit returns how long a call may take; zero is for ever.
func (c *Client) limit(o op) time.Duration {
	d, ok := c.timeouts[o.name]
	switch {
	case ok:
	case o.name == "RunPodSandbox":
		d = 2 * c.timeout
	case o.name == "PullImage":
		return 0
	default:
		d = c.timeout
	}
	extra := max(o.extra, 0)
	if d == 0 || extra > math.MaxInt64-d {
		return 0
	}
	return d + extra
}

func (o op) fail(err error) error { return &cri.Error{Op: o.name, ID: o.id, Err: err} }

// field is a field of an answer that the protocol requires.
type field struct {
	name string
	set  bool
}

// require returns an error that names the first field that is not set.
func (o op) require(fields ...field) error {
	for _, f := range fields {
		if !f.set {
			return o.fail(fmt.Errorf("answer of the runtime: %s: not set", f.name))
		}
	}
	return nil
}

// seconds rounds up to whole seconds, the unit of the protocol, but never to more than a runtime can turn back into a
// [time.Duration]: containerd takes what overflows for a grace period that has run out.
func seconds(d time.Duration) int64 {
	s := int64(max(d, 0) / time.Second)
	if d%time.Second > 0 && s < math.MaxInt64/int64(time.Second) {
		s++
	}
	return s
}
