// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// StreamEvents calls fn for each event until ctx ends, the stream breaks or fn returns an error, and returns the
// cause: the error of fn as it is, [io.EOF] within a [*cri.Error] where the runtime closed the stream.
func (c *Client) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := op{name: "GetContainerEvents"}
	began := time.Now()
	stream, err := c.runtime.GetContainerEvents(ctx, &v1.GetEventsRequest{})
	c.tell(o, began, err)
	if err != nil {
		return o.fail(c.conn.translate(err))
	}
	for {
		p, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return o.fail(fmt.Errorf("stream closed by the runtime: %w", err))
		case err != nil:
			return o.fail(c.conn.translate(err))
		}
		if err := fn(cripb.DecodeEvent(p)); err != nil {
			return err
		}
	}
}
