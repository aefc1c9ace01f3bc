// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

func TestDialAcceptsUnixEndpoints(t *testing.T) {
	for _, good := range []string{"unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"} {
		dialClient(t, good, remote.Options{})
	}
	for _, bad := range []string{"", "run/x.sock", "unix://run/x.sock", "tcp://127.0.0.1:1", "http://x", "npipe:////./pipe/x"} {
		_, err := remote.Dial(bad, remote.Options{})
		assert.ErrorContains(t, err, "want unix:///path or /path", bad)
		_, err = remote.Dial("/run/x.sock", remote.Options{ImageEndpoint: bad})
		if bad != "" {
			assert.ErrorContains(t, err, "dial image service", bad)
		}
	}
}

func TestDialRefusesInvalidOptions(t *testing.T) {
	_, err := remote.Dial("/x", remote.Options{Timeout: -1})
	assert.EqualError(t, err, "dial runtime: timeout -1ns: negative")
	_, err = remote.Dial("/x", remote.Options{Timeouts: map[string]time.Duration{"PullImages": 1}})
	assert.EqualError(t, err, `dial runtime: timeout of "PullImages": no such CRI call`)
	_, err = remote.Dial("/x", remote.Options{Timeouts: map[string]time.Duration{"PullImage": -1}})
	assert.EqualError(t, err, "dial runtime: timeout of PullImage -1ns: negative")
}

// A wrong socket path is detected within seconds, with an error that advises what to check.
func TestCheckErrorNamesAdvice(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }

	left, err := net.Listen("unix", at("left"))
	require.NoError(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, left.Close())

	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	serveGreeting(t, at("greeter"), "HTTP/1.1 400 Bad Request\r\n\r\n")

	t.Cleanup(serveStub(t, at("grpc"), nil))
	t.Cleanup(serveStub(t, at("old"), stubResponses{"Version": respondAlways(&v1.VersionResponse{
		Version: "0.0.9", RuntimeName: "old", RuntimeVersion: "1", RuntimeApiVersion: "v1",
	}, nil)}))

	for _, row := range []struct {
		name string
		is   error
		text string
	}{
		{"missing", fs.ErrNotExist, "no such file or directory (check the path, and that the runtime runs)"},
		{"left", cri.ErrUnavailable, "connection refused (no program listens there: check that the runtime runs)"},
		{"file", cri.ErrUnavailable, "(not a socket: check the path)"},
		{"file/below", cri.ErrUnavailable, "not a directory (check the path, and that the runtime runs)"},
		{"greeter", cri.ErrUnavailable, "a program listens there, but does not respond as a CRI v1 runtime"},
		{"grpc", errors.ErrUnsupported, "a program listens there, but does not serve the CRI v1 services"},
		{"old", nil, `kubelet runtime API "0.0.9" of old 1: want "0.1.0"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			begin := time.Now()
			err := dialClient(t, at(row.name), remote.Options{}).Check(t.Context())
			require.Error(t, err)
			assert.Contains(t, err.Error(), "socket "+at(row.name))
			assert.Contains(t, err.Error(), row.text)
			if row.is != nil {
				assert.ErrorIs(t, err, row.is)
			}
			assert.Less(t, time.Since(begin), time.Minute)
		})
	}
}

// serveGreeting is a server of another protocol: it sends a greeting and closes the connection.
func serveGreeting(t *testing.T, socket, greeting string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(greeting))
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
}

func TestCheckCallsBothEndpoints(t *testing.T) {
	dir := t.TempDir()
	runtime, images := filepath.Join(dir, "runtime"), filepath.Join(dir, "images")
	t.Cleanup(serveStub(t, runtime, stubResponses{"Version": respondAlways(&v1.VersionResponse{
		Version: "0.1.0", RuntimeName: "r", RuntimeVersion: "1", RuntimeApiVersion: "v1",
	}, nil)}))
	c := dialClient(t, runtime, remote.Options{ImageEndpoint: images})
	assert.ErrorContains(t, c.Check(t.Context()), "socket "+images)

	t.Cleanup(serveStub(t, images, stubResponses{"ImageFsInfo": respondAlways(&v1.ImageFsInfoResponse{}, nil)}))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.NoError(t, c.Check(context.Background()))
	}, time.Minute, 10*time.Millisecond)
}

// While the runtime is unavailable calls fail at once; afterwards the same client works.
func TestClientRecoversAfterRuntimeRestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	a := stubResponses{
		"StartContainer": respondAlways(&v1.StartContainerResponse{}, nil),
		"StopContainer": func(ctx context.Context, _ any) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	stop := serveStub(t, socket, a)
	c := dialClient(t, socket, remote.Options{})
	require.NoError(t, c.StartContainer(t.Context(), "c"))

	for range 2 {
		inFlight := make(chan error, 1)
		go func() { inFlight <- c.StopContainer(context.Background(), "c", time.Hour) }()
		require.NoError(t, c.StartContainer(t.Context(), "c"))
		stop()
		assert.ErrorIs(t, <-inFlight, cri.ErrUnavailable, "a running call fails")

		begin := time.Now()
		for range 20 {
			err := c.StartContainer(t.Context(), "c")
			assert.ErrorIs(t, err, cri.ErrUnavailable)
		}
		assert.Less(t, time.Since(begin), time.Minute)
		assert.ErrorContains(t, c.StartContainer(t.Context(), "c"), "check the path, and that the runtime runs")

		stop = serveStub(t, socket, a)
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			assert.NoError(t, c.StartContainer(context.Background(), "c"))
		}, time.Minute, 10*time.Millisecond)
	}
	stop()
}

// streamingRuntime is a runtime whose event stream plays a script.
type streamingRuntime struct {
	v1.UnimplementedRuntimeServiceServer
	play func(grpc.ServerStreamingServer[v1.ContainerEventResponse]) error
}

func (s streamingRuntime) GetContainerEvents(
	_ *v1.GetEventsRequest, to grpc.ServerStreamingServer[v1.ContainerEventResponse],
) error {
	return s.play(to)
}

func dialStream(t *testing.T, play func(grpc.ServerStreamingServer[v1.ContainerEventResponse]) error) *remote.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	g := grpc.NewServer(grpc.WaitForHandlers(true))
	v1.RegisterRuntimeServiceServer(g, streamingRuntime{play: play})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) { // returned if the server was stopped before Serve
			assert.NoError(t, err)
		}
	})
	t.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return dialClient(t, socket, remote.Options{})
}

func TestStreamEvents(t *testing.T) {
	two := func(to grpc.ServerStreamingServer[v1.ContainerEventResponse]) error {
		for _, id := range []string{"a", "b"} {
			if err := to.Send(&v1.ContainerEventResponse{
				ContainerId: id, ContainerEventType: v1.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: 7,
			}); err != nil {
				return err
			}
		}
		return nil
	}
	t.Run("stream closed by the runtime is an error", func(t *testing.T) {
		var got []string
		err := dialStream(t, two).StreamEvents(t.Context(), func(e cri.Event) error {
			got = append(got, e.Type.String()+" "+e.ID)
			return nil
		})
		assert.ErrorIs(t, err, io.EOF)
		assert.EqualError(t, err, "GetContainerEvents: stream closed by the runtime: EOF")
		assert.Equal(t, []string{"stopped a", "stopped b"}, got)
	})
	t.Run("error of the callback ends the stream", func(t *testing.T) {
		enough := errors.New("enough")
		calls := 0
		err := dialStream(t, two).StreamEvents(t.Context(), func(cri.Event) error { calls++; return enough })
		assert.Equal(t, enough, err)
		assert.Equal(t, 1, calls)
	})
	t.Run("end of ctx ends the stream", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c := dialStream(t, func(to grpc.ServerStreamingServer[v1.ContainerEventResponse]) error {
			cancel()
			<-to.Context().Done()
			return nil
		})
		assert.ErrorIs(t, c.StreamEvents(ctx, func(cri.Event) error { return nil }), context.Canceled)
	})
	t.Run("runtime without events", func(t *testing.T) {
		err := dialStub(t, nil, remote.Options{}).StreamEvents(t.Context(), func(cri.Event) error { return nil })
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	})
	t.Run("missing runtime", func(t *testing.T) {
		c := dialClient(t, filepath.Join(t.TempDir(), "cri.sock"), remote.Options{})
		err := c.StreamEvents(t.Context(), func(cri.Event) error { return nil })
		assert.ErrorIs(t, err, cri.ErrUnavailable)
		assert.ErrorContains(t, err, "check the path")
	})
}
