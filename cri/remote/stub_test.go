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

// answers says what a stub runtime answers to each CRI call. A call that is not there is Unimplemented.
type answers map[string]func(ctx context.Context, request any) (any, error)

// always answers with the same whatever is asked.
func always(answer any, err error) func(context.Context, any) (any, error) {
	return func(context.Context, any) (any, error) { return answer, err }
}

func dial(t testing.TB, endpoint string, o remote.Options) *remote.Client {
	t.Helper()
	client, err := remote.Dial(endpoint, o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// dialStub serves answers on a socket until the test ends and returns a client of it.
func dialStub(t testing.TB, a answers, o remote.Options) *remote.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	t.Cleanup(serveStub(t, socket, a))
	return dial(t, socket, o)
}

// serveStub serves answers on a socket until stop is called.
func serveStub(t testing.TB, socket string, a answers) (stop func()) {
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
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // as it is if it was stopped before it began
			assert.NoError(t, err)
		}
	})
	return func() {
		g.Stop()
		wg.Wait()
	}
}
