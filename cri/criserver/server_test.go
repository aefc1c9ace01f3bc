// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
)

// bareRuntime is a runtime without optional capabilities.
type bareRuntime struct{ cri.Runtime }

// listingRuntime is a runtime with a fixed snapshot.
type listingRuntime struct {
	cri.Runtime
	snapshot cri.Snapshot
	err      error
}

func (l listingRuntime) List(context.Context) (cri.Snapshot, error) { return l.snapshot, l.err }

func (l listingRuntime) StartContainer(context.Context, string) error { return l.err }

func (l listingRuntime) ContainerStats(context.Context) ([]cri.ContainerStats, error) {
	var all []cri.ContainerStats
	for _, c := range l.snapshot.Containers {
		all = append(all, cri.ContainerStats{ID: c.ID, Labels: c.Labels})
	}
	return all, l.err
}

func (l listingRuntime) SandboxStats(context.Context) ([]cri.SandboxStats, error) {
	var all []cri.SandboxStats
	for _, s := range l.snapshot.Sandboxes {
		all = append(all, cri.SandboxStats{ID: s.ID, Labels: s.Labels})
	}
	return all, l.err
}

// twoPods returns a runtime with a ready sandbox s1 with containers c1 (running) and c2 (exited), and a stopped sandbox s2
// with c3.
func twoPods() listingRuntime {
	web, db := map[string]string{"app": "web", "tier": "1"}, map[string]string{"app": "db"}
	return listingRuntime{snapshot: cri.Snapshot{
		Sandboxes: []cri.Sandbox{{ID: "s1", Labels: web}, {ID: "s2", State: cri.SandboxNotReady, Labels: db}},
		Containers: []cri.Container{
			{ID: "c1", SandboxID: "s1", State: cri.ContainerRunning, Labels: web},
			{ID: "c2", SandboxID: "s1", State: cri.ContainerExited, Labels: web},
			{ID: "c3", SandboxID: "s2", State: cri.ContainerExited, Labels: db},
		},
	}}
}

// startServer serves a runtime until the test ends or stop is called, and returns raw gRPC clients.
func startServer(t *testing.T, rt cri.Runtime, o criserver.Options) (
	runtime v1.RuntimeServiceClient, images v1.ImageServiceClient, stop func(),
) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, criserver.New(rt, o).Serve(ctx, l)) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return v1.NewRuntimeServiceClient(conn), v1.NewImageServiceClient(conn), stop
}

func TestListFilters(t *testing.T) {
	client, _, _ := startServer(t, twoPods(), criserver.Options{})
	running := &v1.ContainerStateValue{State: v1.ContainerState_CONTAINER_RUNNING}
	for _, row := range []struct {
		filter *v1.ContainerFilter
		want   []string
	}{
		{nil, []string{"c1", "c2", "c3"}},
		{&v1.ContainerFilter{Id: "c2"}, []string{"c2"}},
		{&v1.ContainerFilter{Id: "c"}, nil},
		{&v1.ContainerFilter{State: running}, []string{"c1"}},
		{&v1.ContainerFilter{State: &v1.ContainerStateValue{}}, nil}, // created
		{&v1.ContainerFilter{PodSandboxId: "s1"}, []string{"c1", "c2"}},
		{&v1.ContainerFilter{LabelSelector: map[string]string{"app": "db"}}, []string{"c3"}},
		{&v1.ContainerFilter{LabelSelector: map[string]string{"app": "web", "tier": "2"}}, nil},
		{&v1.ContainerFilter{LabelSelector: map[string]string{"missing": ""}}, nil},
		{&v1.ContainerFilter{PodSandboxId: "s2", State: running}, nil},
	} {
		r, err := client.ListContainers(t.Context(), &v1.ListContainersRequest{Filter: row.filter})
		require.NoError(t, err)
		assert.Equal(t, row.want, collectIDs(r.GetContainers()), "%v", row.filter)
	}
	for _, row := range []struct {
		filter *v1.PodSandboxFilter
		want   []string
	}{
		{nil, []string{"s1", "s2"}},
		{&v1.PodSandboxFilter{Id: "s2"}, []string{"s2"}},
		{&v1.PodSandboxFilter{State: &v1.PodSandboxStateValue{}}, []string{"s1"}}, // ready
		{&v1.PodSandboxFilter{LabelSelector: map[string]string{"app": "db"}}, []string{"s2"}},
		{&v1.PodSandboxFilter{Id: "s1", LabelSelector: map[string]string{"app": "db"}}, nil},
	} {
		r, err := client.ListPodSandbox(t.Context(), &v1.ListPodSandboxRequest{Filter: row.filter})
		require.NoError(t, err)
		assert.Equal(t, row.want, collectIDs(r.GetItems()), "%v", row.filter)
	}
}

func collectIDs[P interface{ GetId() string }](all []P) (out []string) {
	for _, p := range all {
		out = append(out, p.GetId())
	}
	return out
}

func TestStats(t *testing.T) {
	client, _, _ := startServer(t, twoPods(), criserver.Options{})
	for want, filter := range map[string]*v1.ContainerStatsFilter{
		"[c1 c2 c3]": nil,
		"[c3]":       {Id: "c3"},
		"[c1 c2]":    {PodSandboxId: "s1"},
		"[]":         {PodSandboxId: "s1", Id: "c3"},
	} {
		r, err := client.ListContainerStats(t.Context(), &v1.ListContainerStatsRequest{Filter: filter})
		require.NoError(t, err)
		var got []string
		for _, s := range r.GetStats() {
			got = append(got, s.GetAttributes().GetId())
		}
		assert.Equal(t, want, fmt.Sprint(got))
	}
	c, err := client.ContainerStats(t.Context(), &v1.ContainerStatsRequest{ContainerId: "c2"})
	require.NoError(t, err)
	assert.Equal(t, "c2", c.GetStats().GetAttributes().GetId())
	s, err := client.PodSandboxStats(t.Context(), &v1.PodSandboxStatsRequest{PodSandboxId: "s2"})
	require.NoError(t, err)
	assert.Equal(t, "s2", s.GetStats().GetAttributes().GetId())
	for _, id := range []string{"", "x"} {
		_, err = client.ContainerStats(t.Context(), &v1.ContainerStatsRequest{ContainerId: id})
		assert.Equal(t, codes.NotFound, status.Code(err))
		_, err = client.PodSandboxStats(t.Context(), &v1.PodSandboxStatsRequest{PodSandboxId: id})
		assert.Equal(t, codes.NotFound, status.Code(err))
	}
}

// Without an Inspector, the list is complete and a status comes from it.
func TestStatusWithoutInspector(t *testing.T) {
	client, _, _ := startServer(t, bareRuntime{twoPods()}, criserver.Options{})
	c, err := client.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: "c2"})
	require.NoError(t, err)
	assert.Equal(t, v1.ContainerState_CONTAINER_EXITED, c.GetStatus().GetState())
	s, err := client.PodSandboxStatus(t.Context(), &v1.PodSandboxStatusRequest{PodSandboxId: "s2"})
	require.NoError(t, err)
	assert.Equal(t, v1.PodSandboxState_SANDBOX_NOTREADY, s.GetStatus().GetState())
	_, err = client.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: "x"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	_, err = client.PodSandboxStatus(t.Context(), &v1.PodSandboxStatusRequest{PodSandboxId: "x"})
	assert.Equal(t, codes.NotFound, status.Code(err))
}

// The kubelet and crictl accept a runtime that implements only cri.Runtime.
func TestServerAcceptsRuntimeWithoutCapabilities(t *testing.T) {
	client, images, _ := startServer(t, bareRuntime{twoPods()}, criserver.Options{})
	v, err := client.Version(t.Context(), &v1.VersionRequest{})
	require.NoError(t, err)
	assert.Equal(t, "0.1.0", v.GetVersion())
	assert.Equal(t, "v1", v.GetRuntimeApiVersion())
	s, err := client.Status(t.Context(), &v1.StatusRequest{Verbose: true})
	require.NoError(t, err)
	require.Len(t, s.GetStatus().GetConditions(), 2)
	for _, c := range s.GetStatus().GetConditions() {
		assert.True(t, c.GetStatus(), c.GetType())
	}
	_, err = client.UpdateRuntimeConfig(t.Context(), &v1.UpdateRuntimeConfigRequest{})
	assert.NoError(t, err)

	for name, call := range map[string]func(ctx context.Context) error{
		"exec sync": func(ctx context.Context) error { _, err := client.ExecSync(ctx, &v1.ExecSyncRequest{}); return err },
		"exec":      func(ctx context.Context) error { _, err := client.Exec(ctx, &v1.ExecRequest{}); return err },
		"attach":    func(ctx context.Context) error { _, err := client.Attach(ctx, &v1.AttachRequest{}); return err },
		"forward": func(ctx context.Context) error {
			_, err := client.PortForward(ctx, &v1.PortForwardRequest{})
			return err
		},
		"reopen": func(ctx context.Context) error {
			_, err := client.ReopenContainerLog(ctx, &v1.ReopenContainerLogRequest{})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := client.UpdateContainerResources(ctx, &v1.UpdateContainerResourcesRequest{})
			return err
		},
		"update sandbox": func(ctx context.Context) error {
			_, err := client.UpdatePodSandboxResources(ctx, &v1.UpdatePodSandboxResourcesRequest{})
			return err
		},
		"stats": func(ctx context.Context) error {
			_, err := client.ListContainerStats(ctx, &v1.ListContainerStatsRequest{})
			return err
		},
		"sandbox stats": func(ctx context.Context) error {
			_, err := client.ListPodSandboxStats(ctx, &v1.ListPodSandboxStatsRequest{})
			return err
		},
		"config": func(ctx context.Context) error {
			_, err := client.RuntimeConfig(ctx, &v1.RuntimeConfigRequest{})
			return err
		},
		"events": func(ctx context.Context) error {
			stream, err := client.GetContainerEvents(ctx, &v1.GetEventsRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"list images": func(ctx context.Context) error { _, err := images.ListImages(ctx, &v1.ListImagesRequest{}); return err },
		"image status": func(ctx context.Context) error {
			_, err := images.ImageStatus(ctx, &v1.ImageStatusRequest{})
			return err
		},
		"remove image": func(ctx context.Context) error {
			_, err := images.RemoveImage(ctx, &v1.RemoveImageRequest{})
			return err
		},
		"image fs": func(ctx context.Context) error {
			_, err := images.ImageFsInfo(ctx, &v1.ImageFsInfoRequest{})
			return err
		},
		"pull": func(ctx context.Context) error { _, err := images.PullImage(ctx, &v1.PullImageRequest{}); return err },
	} {
		assert.Equal(t, codes.Unimplemented, status.Code(call(t.Context())), name)
	}
}

func TestRequestWithoutRequiredFieldIsInvalidArgument(t *testing.T) {
	client, _, _ := startServer(t, critest.New(critest.Options{}), criserver.Options{})
	_, err := client.RunPodSandbox(t.Context(), &v1.RunPodSandboxRequest{})
	assert.EqualError(t, err, "rpc error: code = InvalidArgument desc = config.metadata: not set")
	_, err = client.CreateContainer(t.Context(), &v1.CreateContainerRequest{})
	assert.EqualError(t, err, "rpc error: code = InvalidArgument desc = config.metadata: not set")
	_, err = client.CreateContainer(t.Context(), &v1.CreateContainerRequest{
		Config: &v1.ContainerConfig{Metadata: &v1.ContainerMetadata{Name: "c"}},
	})
	assert.EqualError(t, err, "rpc error: code = InvalidArgument desc = sandbox_config.metadata: not set")
	_, err = client.UpdateContainerResources(t.Context(), &v1.UpdateContainerResourcesRequest{})
	assert.EqualError(t, err, "rpc error: code = InvalidArgument desc = linux: not set")
}

func TestErrorsMapToGRPCCodes(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{cri.ErrNotFound, "NotFound desc = not found"},
		{&cri.Error{Op: "StartContainer", ID: "c", Err: cri.ErrNotFound}, "NotFound desc = not found"},
		{fmt.Errorf("look for c: %w", cri.ErrNotFound), "NotFound desc = look for c: not found"},
		{cri.ErrAlreadyExists, "AlreadyExists desc = already exists"},
		{cri.ErrUnavailable, "Unavailable desc = runtime unavailable"},
		{cri.ErrTooMany, "ResourceExhausted desc = too many requests"},
		{context.DeadlineExceeded, "DeadlineExceeded desc = context deadline exceeded"},
		{context.Canceled, "Canceled desc = context canceled"},
		{errors.ErrUnsupported, "Unimplemented desc = unsupported operation"},
		{errors.New("boom"), "Unknown desc = boom"},
	} {
		client, _, _ := startServer(t, bareRuntime{listingRuntime{err: row.err}}, criserver.Options{})
		_, err := client.StartContainer(t.Context(), &v1.StartContainerRequest{})
		assert.EqualError(t, err, "rpc error: code = "+row.want)
	}
}

// A missing image is an empty response, not an error, in the protocol.
func TestImages(t *testing.T) {
	rt := critest.New(critest.Options{Images: []cri.Image{critest.NewImage("busybox", 1)}})
	_, images, _ := startServer(t, bareRuntime{rt}, criserver.Options{Images: rt, Puller: rt})
	spec := func(name string) *v1.ImageSpec { return &v1.ImageSpec{Image: name} }

	s, err := images.ImageStatus(t.Context(), &v1.ImageStatusRequest{Image: spec("missing")})
	require.NoError(t, err)
	assert.Nil(t, s.GetImage())
	_, err = images.RemoveImage(t.Context(), &v1.RemoveImageRequest{Image: spec("missing")})
	assert.NoError(t, err)

	p, err := images.PullImage(t.Context(), &v1.PullImageRequest{Image: spec("nginx")})
	require.NoError(t, err)
	for name, want := range map[string]int{"": 2, "nginx": 1, "missing": 0} {
		r, err := images.ListImages(t.Context(), &v1.ListImagesRequest{Filter: &v1.ImageFilter{Image: spec(name)}})
		require.NoError(t, err)
		assert.Len(t, r.GetImages(), want, name)
	}
	s, err = images.ImageStatus(t.Context(), &v1.ImageStatusRequest{Image: spec(p.GetImageRef())})
	require.NoError(t, err)
	assert.NotNil(t, s.GetImage())
	_, err = images.ImageFsInfo(t.Context(), &v1.ImageFsInfoRequest{})
	assert.NoError(t, err)
}

// floodingRuntime streams events as fast as possible, and records when its stream ends.
type floodingRuntime struct {
	cri.Runtime
	events int
	ended  chan error
}

func (f floodingRuntime) StreamEvents(ctx context.Context, fn func(cri.Event) error) (err error) {
	defer func() { f.ended <- err }()
	for i := range f.events {
		if err := fn(cri.Event{ID: strconv.Itoa(i), Pod: cri.Pod{
			PodIdentity: cri.PodIdentity{UID: "u", Name: string(make([]byte, 1000))},
		}}); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// A client that does not read neither blocks the runtime nor misses events unnoticed.
func TestSlowEventClientGetsResourceExhausted(t *testing.T) {
	f := floodingRuntime{events: 10_000, ended: make(chan error, 1)}
	client, _, _ := startServer(t, f, criserver.Options{EventBuffer: 10})
	stream, err := client.GetContainerEvents(t.Context(), &v1.GetEventsRequest{})
	require.NoError(t, err)

	assert.Equal(t, codes.ResourceExhausted, status.Code(<-f.ended), "the runtime's stream ends before the client reads")
	for next := 0; ; next++ {
		e, err := stream.Recv()
		if err != nil {
			assert.Equal(t, codes.ResourceExhausted, status.Code(err))
			assert.Positive(t, next)
			assert.Less(t, next, f.events)
			return
		}
		require.Equal(t, strconv.Itoa(next), e.GetContainerId(), "no event is missing before the end of the stream")
	}
}

func TestEventStreamEndsWhenClientDisconnects(t *testing.T) {
	f := floodingRuntime{events: 1, ended: make(chan error, 1)}
	client, _, _ := startServer(t, f, criserver.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.GetContainerEvents(ctx, &v1.GetEventsRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	cancel()
	assert.ErrorIs(t, <-f.ended, context.Canceled)
}

// hangingStopRuntime is a runtime whose StopContainer blocks until its context ends.
type hangingStopRuntime struct {
	cri.Runtime
	begun, ended chan struct{}
}

func (s hangingStopRuntime) StopContainer(ctx context.Context, _ string, _ time.Duration) error {
	close(s.begun)
	<-ctx.Done()
	close(s.ended)
	return ctx.Err()
}

func TestServeCancelsCallsWhenContextEnds(t *testing.T) {
	rt := hangingStopRuntime{begun: make(chan struct{}), ended: make(chan struct{})}
	client, _, stop := startServer(t, rt, criserver.Options{})
	failed := make(chan error, 1)
	go func() {
		_, err := client.StopContainer(context.Background(), &v1.StopContainerRequest{Timeout: 3600})
		failed <- err
	}()
	<-rt.begun
	stop()
	select {
	case <-rt.ended:
	default:
		assert.Fail(t, "Serve returned before the running call")
	}
	assert.Equal(t, codes.Unavailable, status.Code(<-failed))
}

func TestServeReturnsListenerError(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cri.sock"))
	require.NoError(t, err)
	require.NoError(t, l.Close())
	err = criserver.New(critest.New(critest.Options{}), criserver.Options{}).Serve(t.Context(), l)
	assert.ErrorContains(t, err, "serve CRI on "+l.Addr().String())
	assert.Panics(t, func() { criserver.New(nil, criserver.Options{}) })
}

// A list that exceeds the message size differs from a temporary error, and single pods can still be listed.
func TestOversizedListIsErrTooLarge(t *testing.T) {
	rt := critest.New(critest.Options{})
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
			Pod:         cri.PodIdentity{UID: uid, Name: uid, Namespace: "default"},
			Labels:      map[string]string{cri.LabelPodUID: uid},
			Annotations: map[string]string{"hooks": strings.Repeat("x", 4<<20)},
		})
		require.NoError(t, err)
	}
	client := serveAndDial(t, rt, criserver.Options{})
	_, err := client.List(t.Context())
	require.ErrorIs(t, err, cri.ErrTooLarge)
	pod, err := client.ListPod(t.Context(), "c")
	require.NoError(t, err)
	require.Len(t, pod.Sandboxes, 1)

	behind := cri.ListerFunc(func(context.Context) (cri.Snapshot, error) {
		return cri.Snapshot{}, &cri.Error{Op: "List", Err: cri.ErrTooLarge} // the error of a remote runtime
	})
	client = serveAndDial(t, struct {
		cri.Lister
		cri.Sandboxes
		cri.Containers
	}{behind, rt, rt}, criserver.Options{})
	_, err = client.List(t.Context())
	require.ErrorIs(t, err, cri.ErrTooLarge)
}

// Checkpoints and pod CIDRs reach a runtime that implements them.
func TestCheckpointAndPodCIDRReachRuntime(t *testing.T) {
	rt := critest.New(critest.Options{})
	client, _, _ := startServer(t, rt, criserver.Options{})
	set := func(cidr string) error {
		_, err := client.UpdateRuntimeConfig(t.Context(), &v1.UpdateRuntimeConfigRequest{
			RuntimeConfig: &v1.RuntimeConfig{NetworkConfig: &v1.NetworkConfig{PodCidr: cidr}},
		})
		return err
	}
	require.NoError(t, set("10.9.0.0/24, fd00::/64"))
	require.NoError(t, set(""))
	assert.Equal(t, codes.InvalidArgument, status.Code(set("10.9.0.0")))
	id, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "third"}})
	require.NoError(t, err)
	s, err := client.PodSandboxStatus(t.Context(), &v1.PodSandboxStatusRequest{PodSandboxId: id})
	require.NoError(t, err)
	assert.Equal(t, "10.9.0.1", s.GetStatus().GetNetwork().GetIp())
	_, err = client.CheckpointContainer(t.Context(), &v1.CheckpointContainerRequest{ContainerId: "x"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	_, err = client.CheckpointContainer(t.Context(), &v1.CheckpointContainerRequest{ContainerId: "none"})
	assert.Equal(t, codes.NotFound, status.Code(err))
}
