// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"bytes"
	"context"
	"errors"
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
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/privatesocket"
)

// serveUntil runs a server until the returned function is called.
func serveUntil(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, s.Run(ctx)) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func newServer(t *testing.T, o Options) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pr")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	o.Socket = filepath.Join(dir, "s")
	s, err := New(o)
	require.NoError(t, err)
	return s
}

func dial(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.opts.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 5 * time.Millisecond, Multiplier: 1, MaxDelay: 5 * time.Millisecond,
		}}))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// failingListener is a listener whose Accept fails.
type failingListener struct{ net.Listener }

func (failingListener) Accept() (net.Conn, error) { return nil, errors.New("accept: broken") }

func TestRunOpensTheSocketAgainAfterAnError(t *testing.T) {
	s := newServer(t, Options{})
	attempts := 0
	s.listen = func(path string) (net.Listener, error) {
		attempts++
		switch attempts {
		case 1:
			return nil, errors.New("no file descriptors")
		case 2:
			l, err := privatesocket.Listen(path)
			return failingListener{l}, err
		}
		return privatesocket.Listen(path)
	}
	stop := serveUntil(t, s)
	_, err := podresourcesv1.NewPodResourcesListerClient(dial(t, s)).List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	assert.NoError(t, err)
	stop()
	assert.Equal(t, 3, attempts)
	assert.ErrorContains(t, s.Run(t.Context()), "second call of Run")
}

// A client that does not receive its responses loses its connection, before the responses need too much memory.
func TestUnsentResponsesAreBounded(t *testing.T) {
	p := pod("p", container("main", device.Regular, 1))
	held := Allocations{"p": {"main": {}}}
	for range 2000 {
		held["p"]["main"][gpu] = append(held["p"]["main"][gpu], device.Device{ID: strings.Repeat("x", 500)})
	}
	s := newServer(t, Options{Rate: -1, Pods: PodsFunc(func() (active, inactive []device.Pod) { return []device.Pod{p}, nil }), Devices: fixed(held)})
	s.conns.maxUnsent = 8 << 20 // a response has about 1 MiB
	serveUntil(t, s)
	reading := podresourcesv1.NewPodResourcesListerClient(dial(t, s))
	list := func() {
		answer, err := reading.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
		require.NoError(t, err)
		require.Len(t, answer.GetPodResources()[0].GetContainers()[0].GetDevices(), 2000)
	}
	for range 20 {
		list()
	}
	assert.Eventually(t, func() bool { return s.unsent() == 0 }, 10*time.Second, time.Millisecond, "all responses are counted as sent")

	deaf := dial(t, s)
	var streams []grpc.ClientStream
	for range 20 {
		stream, err := deaf.NewStream(t.Context(), &grpc.StreamDesc{}, podresourcesv1.PodResourcesLister_List_FullMethodName)
		require.NoError(t, err)
		_ = stream.SendMsg(&podresourcesv1.ListPodResourcesRequest{})
		_ = stream.CloseSend()
		streams = append(streams, stream)
	}
	list()
	failed := 0
	for _, stream := range streams {
		if stream.RecvMsg(&podresourcesv1.ListPodResourcesResponse{}) != nil {
			failed++
		}
	}
	assert.GreaterOrEqual(t, failed, 8, "the connection was closed")
	list()
	assert.LessOrEqual(t, s.unsent(), 8<<20)
}

// fixed implements Devices with allocations that do not change.
type fixed Allocations

func (f fixed) Allocations() Allocations              { return Allocations(f) }
func (fixed) Allocatable() map[string][]device.Device { return nil }

// unsent returns the number of unsent bytes of all connections.
func (s *Server) unsent() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return s.conns.unsent
}

func TestCountDataCountsDataFramesInAnyParts(t *testing.T) {
	var stream bytes.Buffer
	for _, frame := range []struct{ kind, size int }{{4, 0}, {0, 300}, {1, 20}, {0, 0}, {0, 70_000}, {6, 8}} {
		stream.Write([]byte{byte(frame.size >> 16), byte(frame.size >> 8), byte(frame.size), byte(frame.kind), 1, 0, 0, 0, 1})
		stream.Write(make([]byte, frame.size))
	}
	for _, part := range []int{1, 2, 7, 9, 10, 4096, stream.Len()} {
		var f frameCounter
		count := 0
		for rest := stream.Bytes(); len(rest) > 0; {
			n := min(part, len(rest))
			count += f.countData(rest[:n])
			rest = rest[n:]
		}
		assert.Equal(t, 70_300, count, "in parts of %d bytes", part)
	}
}

func TestRateLimitOfTheKubeletIsTheDefault(t *testing.T) {
	now, admitted := time.Unix(1_000, 0), 0
	for s := newServer(t, Options{}); s.limit.TakeToken(now); admitted++ {
	}
	assert.Equal(t, 10, admitted)
	assert.Nil(t, newServer(t, Options{Rate: -1}).limit, "a negative rate is no limit")
}
