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

// StreamEvents calls fn for each event of the runtime until ctx ends, the stream breaks or fn returns an error, which it
// returns unchanged. If the runtime closes the stream, it returns [io.EOF] wrapped in a [*cri.Error].
func (c *Client) StreamEvents(ctx context.Context, fn func(cri.Event) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := callInfo{name: "GetContainerEvents"}
	began := time.Now()
	stream, err := c.runtime.GetContainerEvents(ctx, &v1.GetEventsRequest{})
	c.reportCall(o, began, err)
	if err != nil {
		return o.wrapError(c.conn.translateError(err))
	}
	for {
		p, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return o.wrapError(fmt.Errorf("stream closed by the runtime: %w", err))
		case err != nil:
			return o.wrapError(c.conn.translateError(err))
		}
		if err := fn(cripb.DecodeEvent(p)); err != nil {
			return err
		}
	}
}
