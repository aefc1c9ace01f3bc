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

// callInfo describes one call: its CRI name, the ID of its object for errors, and extra time beyond its time limit.
type callInfo struct {
	name  string
	id    string
	extra time.Duration
}

// invoke calls rpc within its time limit, reports the call to Options.CallReturned, and wraps errors in a [cri.Error].
func invoke[Q, A any](
	ctx context.Context, client *Client, info callInfo, rpc func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (A, error) {
	if d := client.timeLimit(info); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	began := time.Now()
	answer, err := rpc(ctx, request)
	client.reportCall(info, began, err)
	if err != nil {
		return answer, info.wrapError(err)
	}
	return answer, nil
}

// reportCall passes the name of a finished call, its duration and its error to Options.CallReturned, if that is set.
func (c *Client) reportCall(info callInfo, began time.Time, err error) {
	if c.callReturned != nil {
		c.callReturned(info.name, time.Since(began), err)
	}
}

// timeLimit returns the time limit of a call: that in Options.Timeouts or the kubelet's default, plus info.extra. Zero means
// none.
func (c *Client) timeLimit(info callInfo) time.Duration {
	d, ok := c.timeouts[info.name]
	switch {
	case ok:
	case info.name == "RunPodSandbox":
		d = 2 * c.timeout
	case info.name == "PullImage":
		return 0
	default:
		d = c.timeout
	}
	extra := max(info.extra, 0)
	if d == 0 || extra > math.MaxInt64-d {
		return 0
	}
	return d + extra
}

// wrapError wraps err in a [cri.Error] with the name of the call and the ID of its object.
func (o callInfo) wrapError(err error) error { return &cri.Error{Op: o.name, ID: o.id, Err: err} }

// requiredField is a response field that the CRI protocol requires, and whether it is set.
type requiredField struct {
	name string
	set  bool
}

// requireFields returns an error that names the first response field that is not set. If all fields are set, it returns nil.
func (o callInfo) requireFields(fields ...requiredField) error {
	for _, f := range fields {
		if !f.set {
			return o.wrapError(fmt.Errorf("answer of the runtime: %s: not set", f.name))
		}
	}
	return nil
}

// roundUpToSeconds converts a duration to whole seconds, the unit of the CRI, rounded up and not negative.
func roundUpToSeconds(duration time.Duration) int64 {
	s := int64(max(duration, 0) / time.Second)
	if duration%time.Second > 0 && s < math.MaxInt64/int64(time.Second) { // containerd would treat a larger grace period as expired
		s++
	}
	return s
}
