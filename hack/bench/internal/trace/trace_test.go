// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/hack/bench/internal/trace"
)

// NewPhase reports count, total, median and maximum per method, and the concurrency of the calls.
func TestPhaseSumsUpCalls(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(method string, from, to int) trace.Call {
		return trace.Call{Method: method, Start: start.Add(time.Duration(from) * time.Millisecond), End: start.Add(time.Duration(to) * time.Millisecond)}
	}
	p := trace.NewPhase("starting", []trace.Call{
		at("RunPodSandbox", 0, 500), at("RunPodSandbox", 100, 300), at("ListContainers", 200, 250),
		at("StartContainer", 500, 600), at("RunPodSandbox", 900, 1000), at("Version", 1000, 1000),
	})
	assert.Equal(t, "starting", p.Name)
	require.Len(t, p.Calls, 4)
	assert.Equal(t, "RunPodSandbox", p.Calls[0].Method)
	assert.Equal(t, 3, p.Calls[0].Count)
	assert.InDelta(t, 0.8, p.Calls[0].Sum, 1e-9)
	assert.InDelta(t, 0.2, p.Calls[0].Median, 1e-9)
	assert.InDelta(t, 0.5, p.Calls[0].Max, 1e-9)
	assert.InDeltaSlice(t, []float64{0.3, 0.5, 0.15, 0.05}, p.Under, 1e-9)
	assert.InDeltaSlice(t, []float64{0.3, 0.5, 0.2}, p.Starting, 1e-9)

	var out strings.Builder
	p.Print(&out)
	assert.Regexp(t, `RunPodSandbox +3 +0.800 +200.0 +500.0`, out.String())
	assert.Contains(t, out.String(), "s with n calls under way: 0: 0.300, 1: 0.500, 2: 0.150, 3: 0.050\n")
	assert.Contains(t, out.String(), "s with n starts under way: 0: 0.300, 1: 0.500, 2: 0.200\n")
	trace.NewPhase("idle", nil).Print(&out)
}

// answers is a runtime that implements three methods.
type answers struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (answers) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	_, limited := ctx.Deadline()
	return &runtimeapi.VersionResponse{RuntimeName: "said " + r.GetVersion(), Version: map[bool]string{true: "in time"}[limited]}, nil
}

func (answers) StopContainer(context.Context, *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return nil, status.Error(codes.NotFound, "no such container")
}

func (answers) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, events grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	for _, id := range []string{"a", "b"} {
		if err := events.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
			return err
		}
	}
	<-events.Context().Done()
	return nil
}

// The proxy forwards responses, errors, deadlines and streams unchanged, so that a trace does not change the behavior of the
// agent.
func TestProxyHandsOnCalls(t *testing.T) {
	dir := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(dir, "runtime.sock"))
	require.NoError(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, answers{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	traced := &trace.Trace{}
	p, err := trace.StartProxy(filepath.Join(dir, "proxy.sock"), "unix://"+filepath.Join(dir, "runtime.sock"), traced)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "proxy.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	answer, err := cri.Version(ctx, &runtimeapi.VersionRequest{Version: "hello"})
	require.NoError(t, err)
	assert.Equal(t, "said hello", answer.GetRuntimeName())
	assert.Equal(t, "in time", answer.GetVersion(), "the deadline of the call is forwarded")
	_, err = cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{})
	assert.Equal(t, codes.NotFound, status.Code(err))
	assert.ErrorContains(t, err, "no such container")
	events, err := cri.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	require.NoError(t, err)
	for _, id := range []string{"a", "b"} { // before the stream ends
		event, err := events.Recv()
		require.NoError(t, err)
		assert.Equal(t, id, event.GetContainerId())
	}
	require.NoError(t, p.Close(), "closing the proxy ends the stream")
	_, err = events.Recv()
	require.Error(t, err)

	var methods []string
	for _, c := range traced.Take() {
		methods = append(methods, c.Method)
	}
	assert.Equal(t, []string{"Version", "StopContainer"}, methods, "the event stream is not traced")
	assert.Empty(t, traced.Take())
}

// The methods of a nil Trace do nothing.
func TestNoTrace(t *testing.T) {
	var none *trace.Trace
	none.Begin("Version")()
}
