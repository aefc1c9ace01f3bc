// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugingrpc_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed81659283/nodeagent/internal/plugingrpc"
)

// listen listens on a unix socket at path, which may be longer than the limit of a socket address.
func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	dir, err := os.Open(filepath.Dir(path))
	require.NoError(t, err)
	defer dir.Close()
	t.Chdir(filepath.Dir(path))
	l, err := net.Listen("unix", filepath.Base(path))
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// serve serves a gRPC service on l that responds to every call with a string of size bytes.
func serve(t *testing.T, l net.Listener, size int) *grpc.Server {
	t.Helper()
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
		return s.SendMsg(wrapperspb.String(strings.Repeat("x", size)))
	}))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // the server may stop before it serves
			assert.NoError(t, err)
		}
	})
	t.Cleanup(func() { g.Stop(); wg.Wait() })
	return g
}

func invoke(ctx context.Context, c *grpc.ClientConn) (int, error) {
	answer := &wrapperspb.StringValue{}
	err := c.Invoke(ctx, "/plugin/Ask", &emptypb.Empty{}, answer)
	return len(answer.GetValue()), err
}

func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	require.NoError(t, os.Mkdir(path, 0o700))
	path = filepath.Join(path, "csi.sock")
	g := serve(t, listen(t, path), 1000)
	c, err := plugingrpc.Connect(t.Context(), path)
	require.NoError(t, err)
	defer c.Close()
	n, err := invoke(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, 1000, n)

	// The plugin restarts. The connection does not reconnect to the new server.
	g.Stop()
	serve(t, listen(t, path), 2000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = invoke(ctx, c)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}

// The size of messages from a server is limited.
func TestLargeMessageIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, listen(t, path), plugingrpc.MaxMessage+1)
	c, err := plugingrpc.Connect(t.Context(), path)
	require.NoError(t, err)
	defer c.Close()
	_, err = invoke(t.Context(), c)
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
}

// ConnectWithLimit replaces the limit of Connect.
func TestConnectWithLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	serve(t, listen(t, path), plugingrpc.MaxMessage+1)
	c, err := plugingrpc.ConnectWithLimit(t.Context(), path, 2*plugingrpc.MaxMessage)
	require.NoError(t, err)
	defer c.Close()
	n, err := invoke(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, plugingrpc.MaxMessage+1, n)
}

func TestConnectFailsWithoutServer(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	serve(t, listen(t, at("real")), 1)
	require.NoError(t, os.Symlink(at("real"), at("link")))
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	l := listen(t, at("dead"))
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	for path, want := range map[string]string{
		at("none"): fs.ErrNotExist.Error(), at("link"): "not a socket", at("file"): "not a socket", at("dead"): "connection refused",
		"relative": "absolute path", at("../x") + "/../y": "absolute path", at("x\x00"): "absolute path", "/" + strings.Repeat("x", 5000): "more than",
		dir: "not a socket",
	} {
		_, err := plugingrpc.Connect(t.Context(), path)
		want = strings.Replace(want, "file does not exist", "no such file or directory", 1)
		assert.ErrorContains(t, err, want, "%q", path)
	}
}

// A server that sends nothing delays Connect until ctx ends, and a server with another protocol fails it.
func TestConnectTimesOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := plugingrpc.Connect(ctx, path)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = c.Close()
		}
	})
	_, err = plugingrpc.Connect(t.Context(), path)
	require.ErrorContains(t, err, "not a gRPC server")
	require.NoError(t, l.Close())
}
