// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// GetContainerEvents streams the runtime's events to a client until the client disconnects. A slow client never blocks the
// runtime, because events wait in a buffer. When the buffer is full, the stream ends with an error.
func (r *runtimeService) GetContainerEvents(
	_ *v1.GetEventsRequest, stream grpc.ServerStreamingServer[v1.ContainerEventResponse],
) error {
	if r.server.events == nil {
		return errUnsupportedCall("events")
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	queue := make(chan *v1.ContainerEventResponse, r.server.eventBuffer)
	var (
		wg       sync.WaitGroup
		queueErr error
	)
	wg.Go(func() {
		defer close(queue)
		queueErr = r.server.events.StreamEvents(ctx, func(e cri.Event) error {
			select {
			case queue <- cripb.EncodeEvent(&e):
				return nil
			default:
				return status.Errorf(codes.ResourceExhausted,
					"stream events: client is more than %d events behind: list again", r.server.eventBuffer)
			}
		})
	})
	for p := range queue {
		if err := stream.Send(p); err != nil {
			cancel()
			wg.Wait()
			return err
		}
	}
	wg.Wait()
	return queueErr
}
