// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// messageHeader is the number of bytes that gRPC sends before each message.
const messageHeader = 5

// limitTime returns a context for a new request that ends after Options.Timeout. gRPC calls limitTime before it reads the request: the timeout also
// ends a request that the client does not send completely.
func (s *Server) limitTime(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	_ = cancel // gRPC cancels the parent when the request has returned
	return ctx, nil
}

// interceptRequest runs a request. It rejects requests above the rate limit, and calls the hooks.
func (s *Server) interceptRequest(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	version, method := splitMethod(info.FullMethod)
	if s.limit != nil && !s.limit.TakeToken(time.Now()) {
		callHook(s.opts.Hooks.RequestRejected, version, method)
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	callHook(s.opts.Hooks.RequestReceived, version, method)
	c := connOf(ctx)
	c.startRequest()
	defer c.endRequest()
	response, err := s.running.runRequest(ctx, func() (any, error) { return handle(ctx, request) })
	if err != nil {
		callHook(s.opts.Hooks.RequestFailed, version, method)
		return nil, err
	}
	s.limitUnsent(c, response)
	return response, nil
}

// limitUnsent adds the size of response to the unsent bytes of c. If all unsent bytes exceed the limit, it closes the connection with the most.
func (s *Server) limitUnsent(c *limitedConn, response any) {
	size := proto.Size(response.(proto.Message))
	if c == nil || size > maxResponse { // gRPC does not send a larger response
		return
	}
	if removed := s.conns.addUnsent(c, size+messageHeader); removed != nil {
		if s.conns.shouldWarn() {
			s.opts.Logger.Warn("clients of the podresources API do not receive their responses: closing their connections", "limit", s.conns.maxUnsent)
		}
		_ = removed.Conn.Close()
	}
}

// splitMethod returns the API version and the method of a gRPC method such as "/v1.PodResourcesLister/List".
func splitMethod(full string) (version, method string) {
	version, rest, _ := strings.Cut(strings.TrimPrefix(full, "/"), ".")
	_, method, _ = strings.Cut(rest, "/")
	return version, method
}

func callHook(hook func(version, method string), version, method string) {
	if hook != nil {
		hook(version, method)
	}
}

// runningCalls runs requests. If a source hangs, the request returns when its context ends. The number of concurrent requests is limited, including
// those whose source still hangs.
type runningCalls struct {
	slots   chan struct{}
	started *sync.WaitGroup
}

func newRunningCalls(limit int) runningCalls {
	return runningCalls{slots: make(chan struct{}, limit), started: &sync.WaitGroup{}}
}

// runRequest waits for a slot, and calls handle. It returns the gRPC error of ctx if ctx ends first.
func (r *runningCalls) runRequest(ctx context.Context, handle func() (any, error)) (any, error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	type result struct {
		response any
		err      error
	}
	returned := make(chan result, 1)
	r.started.Go(func() {
		defer func() { <-r.slots }()
		response, err := handle()
		returned <- result{response, err}
	})
	select {
	case result := <-returned:
		return result.response, result.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// awaitReturns waits until all calls of handle have returned. Call it after the last runRequest.
func (r *runningCalls) awaitReturns() { r.started.Wait() }
