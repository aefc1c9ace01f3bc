// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"net"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri/remote"
)

// stubResponses returns the responses of a stub runtime by CRI call. Other calls are Unimplemented.
type stubResponses map[string]func(ctx context.Context, request any) (any, error)

// respondAlways returns the same response to every request.
func respondAlways(answer any, err error) func(context.Context, any) (any, error) {
	return func(context.Context, any) (any, error) { return answer, err }
}

func dialClient(t testing.TB, endpoint string, o remote.Options) *remote.Client {
	t.Helper()
	client, err := remote.Dial(endpoint, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// dialStub serves responses on a socket until the test ends and returns a client.
func dialStub(t testing.TB, a stubResponses, o remote.Options) *remote.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	t.Cleanup(serveStub(t, socket, a))
	return dialClient(t, socket, o)
}

// serveStub serves responses on a socket until stop is called.
func serveStub(t testing.TB, socket string, a stubResponses) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(
		func(ctx context.Context, request any, call *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if answer := a[path.Base(call.FullMethod)]; answer != nil {
				return answer(ctx, request)
			}
			return next(ctx, request)
		}))
	v1.RegisterRuntimeServiceServer(g, v1.UnimplementedRuntimeServiceServer{})
	v1.RegisterImageServiceServer(g, v1.UnimplementedImageServiceServer{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // returned if the server was stopped before Serve
			assert.NoError(t, err)
		}
	})
	return func() {
		g.Stop()
		wg.Wait()
	}
}
