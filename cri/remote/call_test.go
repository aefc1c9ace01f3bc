// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// The runtime receives the time limit of a call as its deadline.
func TestCallDeadlineIsTimeLimit(t *testing.T) {
	const T = 10 * time.Minute
	const forever = -1
	for _, row := range []struct {
		name string
		call func(ctx context.Context, c *remote.Client)
		rpc  string
		want time.Duration
	}{
		{"most calls", func(ctx context.Context, c *remote.Client) { _ = c.StartContainer(ctx, "c") }, "StartContainer", T},
		{"run sandbox", func(ctx context.Context, c *remote.Client) {
			_, _ = c.RunSandbox(ctx, &cri.SandboxConfig{})
		}, "RunPodSandbox", 2 * T},
		{"stop with a grace period", func(ctx context.Context, c *remote.Client) {
			_ = c.StopContainer(ctx, "c", time.Minute)
		}, "StopContainer", T + time.Minute},
		{"stop with a negative grace period", func(ctx context.Context, c *remote.Client) {
			_ = c.StopContainer(ctx, "c", -time.Hour)
		}, "StopContainer", T},
		{"stop with the longest grace period", func(ctx context.Context, c *remote.Client) {
			_ = c.StopContainer(ctx, "c", math.MaxInt64)
		}, "StopContainer", forever},
		{"exec with a timeout", func(ctx context.Context, c *remote.Client) {
			_, _ = c.ExecSync(ctx, "c", nil, time.Minute)
		}, "ExecSync", T + time.Minute},
		{"exec without a timeout", func(ctx context.Context, c *remote.Client) {
			_, _ = c.ExecSync(ctx, "c", nil, 0)
		}, "ExecSync", forever},
		{"pull", func(ctx context.Context, c *remote.Client) {
			_, _ = c.PullImage(ctx, cri.ImageSpec{}, nil, nil)
		}, "PullImage", forever},
		{"call with its own timeout", func(ctx context.Context, c *remote.Client) { _, _ = c.Status(ctx) }, "Status", time.Minute},
		{"call with timeout disabled", func(ctx context.Context, c *remote.Client) {
			_ = c.RemoveContainer(ctx, "c")
		}, "RemoveContainer", forever},
		{"earlier deadline of the caller", func(ctx context.Context, c *remote.Client) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			_ = c.StartContainer(ctx, "c")
		}, "StartContainer", 30 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			var (
				mu   sync.Mutex
				left time.Duration = forever
			)
			c := dialStub(t, stubResponses{row.rpc: func(ctx context.Context, _ any) (any, error) {
				mu.Lock()
				defer mu.Unlock()
				if deadline, ok := ctx.Deadline(); ok {
					left = time.Until(deadline)
				}
				return nil, status.Error(codes.Internal, "seen")
			}}, remote.Options{Timeout: T, Timeouts: map[string]time.Duration{"Status": time.Minute, "RemoveContainer": 0}})
			row.call(t.Context(), c)
			mu.Lock()
			defer mu.Unlock()
			assert.InDelta(t, row.want, left, float64(10*time.Second), "want %v, got %v", row.want, left)
		})
	}
}

// The protocol uses whole seconds. A fraction rounds up, so that no grace period is shortened. The longest value still fits
// into a time.Duration of the runtime; one second more would overflow.
func TestGraceAndTimeoutRoundUp(t *testing.T) {
	for in, want := range map[time.Duration]int64{
		0: 0, -1: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 30 * time.Second: 30,
		math.MaxInt64: math.MaxInt64 / int64(time.Second),
	} {
		var stop, exec int64
		c := dialStub(t, stubResponses{
			"StopContainer": func(_ context.Context, q any) (any, error) {
				stop = q.(*v1.StopContainerRequest).GetTimeout()
				return &v1.StopContainerResponse{}, nil
			},
			"ExecSync": func(_ context.Context, q any) (any, error) {
				exec = q.(*v1.ExecSyncRequest).GetTimeout()
				return &v1.ExecSyncResponse{}, nil
			},
		}, remote.Options{})
		require.NoError(t, c.StopContainer(t.Context(), "c", in))
		_, err := c.ExecSync(t.Context(), "c", nil, in)
		require.NoError(t, err)
		assert.Equal(t, want, stop, "grace period of %v", in)
		assert.Equal(t, want, exec, "timeout of %v", in)
	}
}

func TestErrorsMapToCRIErrors(t *testing.T) {
	const message = "what the runtime says"
	for _, row := range []struct {
		code    codes.Code
		message string
		is      error
		text    string
	}{
		{codes.NotFound, message, cri.ErrNotFound, message},
		{codes.Unavailable, message, cri.ErrUnavailable, "runtime unavailable: " + message},
		{codes.AlreadyExists, message, cri.ErrAlreadyExists, message},
		{codes.DeadlineExceeded, message, context.DeadlineExceeded, message},
		{codes.Canceled, message, context.Canceled, message},
		{codes.Unimplemented, message, errors.ErrUnsupported, message},
		{codes.NotFound, "", cri.ErrNotFound, "not found"},
		{codes.Internal, "", nil, "Internal"},
		{codes.Unknown, message, nil, message},
		// containerd 2, containerd 1, CRI-O
		{codes.FailedPrecondition, `name "web_0" is reserved for "abc"`, cri.ErrAlreadyExists, `name "web_0" is reserved for "abc"`},
		{codes.Unknown, `name "web_0" is reserved for "abc"`, cri.ErrAlreadyExists, `name "web_0" is reserved for "abc"`},
		{codes.Unknown, "pod web: name is reserved", cri.ErrAlreadyExists, "pod web: name is reserved"},
		{codes.Unknown, "port 80 is reserved", nil, "port 80 is reserved"},
		{codes.FailedPrecondition, message, nil, message},
		// CRI-O
		{codes.Unknown, "container with ID starting with abc not found: ID does not exist", cri.ErrNotFound, "container with ID starting with abc not found: ID does not exist"},
		{codes.Unknown, "open /etc/passwd: not found", nil, "open /etc/passwd: not found"},
		{codes.ResourceExhausted, "grpc: received message larger than max (20 vs. 16)", cri.ErrTooLarge, "grpc: received message larger than max (20 vs. 16)"},
		{codes.ResourceExhausted, "grpc: trying to send message larger than max (20 vs. 16)", cri.ErrTooLarge, "grpc: trying to send message larger than max (20 vs. 16)"},
		{codes.ResourceExhausted, "answer is too large", cri.ErrTooLarge, "answer is too large"},
		{codes.ResourceExhausted, "too many requests", nil, "too many requests"},
	} {
		t.Run(row.code.String()+" "+row.message, func(t *testing.T) {
			c := dialStub(t, stubResponses{"StartContainer": respondAlways(nil, status.Error(row.code, row.message))}, remote.Options{})
			err := c.StartContainer(t.Context(), "id")
			assert.EqualError(t, err, "StartContainer id: "+row.text)
			e, ok := errors.AsType[*cri.Error](err)
			require.True(t, ok)
			assert.Equal(t, "StartContainer", e.Op)
			assert.Equal(t, "id", e.ID)
			assert.Equal(t, row.code, status.Code(e.Err), "the gRPC code is kept")
			for _, s := range []error{
				cri.ErrNotFound, cri.ErrUnavailable, cri.ErrAlreadyExists, cri.ErrTooLarge,
				context.DeadlineExceeded, context.Canceled, errors.ErrUnsupported,
			} {
				assert.Equal(t, errors.Is(row.is, s), errors.Is(err, s), s)
			}
		})
	}
}

// The kubelet distinguishes the reasons of a failed pull by the beginning of the message.
func TestPullErrorKeepsMessagePrefix(t *testing.T) {
	c := dialStub(t, stubResponses{
		"PullImage": respondAlways(nil, status.Error(codes.Unknown, "RegistryUnavailable: try later")),
	}, remote.Options{})
	_, err := c.PullImage(t.Context(), cri.ImageSpec{Image: "x"}, nil, nil)
	e, ok := errors.AsType[*cri.Error](err)
	require.True(t, ok)
	assert.EqualError(t, e.Err, "RegistryUnavailable: try later")
}

func TestStopAndRemoveSucceedForMissingObject(t *testing.T) {
	gone := respondAlways(nil, status.Error(codes.NotFound, "gone"))
	c := dialStub(t, stubResponses{
		"StopContainer": gone, "RemoveContainer": gone, "StopPodSandbox": gone, "RemovePodSandbox": gone,
		"RemoveImage": gone, "StartContainer": gone,
	}, remote.Options{})
	assert.NoError(t, c.StopContainer(t.Context(), "c", 0))
	assert.NoError(t, c.RemoveContainer(t.Context(), "c"))
	assert.NoError(t, c.StopSandbox(t.Context(), "s"))
	assert.NoError(t, c.RemoveSandbox(t.Context(), "s"))
	assert.NoError(t, c.RemoveImage(t.Context(), cri.ImageSpec{Image: "i"}))
	assert.ErrorIs(t, c.StartContainer(t.Context(), "c"), cri.ErrNotFound)
}

// A response without a field that the protocol requires is an error.
func TestResponseWithoutRequiredFieldIsError(t *testing.T) {
	version := func(change func(*v1.VersionResponse)) *v1.VersionResponse {
		v := &v1.VersionResponse{Version: "0.1.0", RuntimeName: "r", RuntimeVersion: "1", RuntimeApiVersion: "v1"}
		change(v)
		return v
	}
	sandbox := func(change func(*v1.PodSandboxStatus)) *v1.PodSandboxStatusResponse {
		s := &v1.PodSandboxStatus{
			Id: "s", CreatedAt: 1, Metadata: &v1.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"},
		}
		change(s)
		return &v1.PodSandboxStatusResponse{Status: s}
	}
	container := func(change func(*v1.ContainerStatus)) *v1.ContainerStatusResponse {
		s := &v1.ContainerStatus{
			Id: "c", CreatedAt: 1, Metadata: &v1.ContainerMetadata{Name: "n"},
			Image: &v1.ImageSpec{Image: "i"}, ImageRef: "ref",
		}
		change(s)
		return &v1.ContainerStatusResponse{Status: s}
	}
	condition := &v1.RuntimeCondition{Type: cri.ConditionRuntimeReady, Status: true}
	for _, row := range []struct {
		rpc    string
		answer any
		want   string // the missing field that the error names; empty: the response is complete
	}{
		{"Version", version(func(*v1.VersionResponse) {}), ""},
		{"Version", version(func(v *v1.VersionResponse) { v.Version = "" }), "version"},
		{"Version", version(func(v *v1.VersionResponse) { v.RuntimeName = "" }), "runtime_name"},
		{"Version", version(func(v *v1.VersionResponse) { v.RuntimeVersion = "" }), "runtime_version"},
		{"Version", version(func(v *v1.VersionResponse) { v.RuntimeApiVersion = "" }), "runtime_api_version"},
		{"Status", &v1.StatusResponse{}, "status.conditions"},
		{"Status", &v1.StatusResponse{Status: &v1.RuntimeStatus{Conditions: []*v1.RuntimeCondition{condition}}}, "status.conditions"},
		{"Status", &v1.StatusResponse{Status: &v1.RuntimeStatus{Conditions: []*v1.RuntimeCondition{condition, condition}}}, ""},
		{"RunPodSandbox", &v1.RunPodSandboxResponse{}, "pod_sandbox_id"},
		{"CreateContainer", &v1.CreateContainerResponse{}, "container_id"},
		{"Exec", &v1.ExecResponse{}, "url"},
		{"Attach", &v1.AttachResponse{}, "url"},
		{"PortForward", &v1.PortForwardResponse{}, "url"},
		{"PullImage", &v1.PullImageResponse{}, "image_ref"},
		{"ImageStatus", &v1.ImageStatusResponse{Image: &v1.Image{Id: "i", Size: 1}}, ""},
		{"ImageStatus", &v1.ImageStatusResponse{Image: &v1.Image{Size: 1}}, "image.id"},
		{"ImageStatus", &v1.ImageStatusResponse{Image: &v1.Image{Id: "i"}}, "image.size"},
		{"PodSandboxStatus", sandbox(func(*v1.PodSandboxStatus) {}), ""},
		{"PodSandboxStatus", &v1.PodSandboxStatusResponse{}, "status.id"},
		{"PodSandboxStatus", sandbox(func(s *v1.PodSandboxStatus) { s.Metadata = nil }), "status.metadata.name"},
		{"PodSandboxStatus", sandbox(func(s *v1.PodSandboxStatus) { s.Metadata.Namespace = "" }), "status.metadata.namespace"},
		{"PodSandboxStatus", sandbox(func(s *v1.PodSandboxStatus) { s.Metadata.Uid = "" }), "status.metadata.uid"},
		{"ContainerStatus", container(func(*v1.ContainerStatus) {}), ""},
		{"ContainerStatus", &v1.ContainerStatusResponse{}, "status.id"},
		{"ContainerStatus", container(func(s *v1.ContainerStatus) { s.Metadata = nil }), "status.metadata.name"},
		{"ContainerStatus", container(func(s *v1.ContainerStatus) { s.Image = nil }), "status.image.image"},
		{"ContainerStatus", container(func(s *v1.ContainerStatus) { s.ImageRef = "" }), "status.image_ref"},
		{"RuntimeConfig", &v1.RuntimeConfigResponse{}, "linux"},
	} {
		t.Run(row.rpc+" "+row.want, func(t *testing.T) {
			c := dialStub(t, stubResponses{
				row.rpc:          respondAlways(row.answer, nil),
				"ListContainers": respondAlways(&v1.ListContainersResponse{}, nil),
			}, remote.Options{})
			err := callers[row.rpc](t.Context(), c)
			if row.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "answer of the runtime: "+row.want+": not set")
			assert.Equal(t, row.want == "linux", errors.Is(err, errors.ErrUnsupported), "a caller chooses the cgroup driver")
		})
	}
}

// callers makes each call with minimal arguments.
var callers = map[string]func(context.Context, *remote.Client) error{
	"Version": func(ctx context.Context, c *remote.Client) error { _, err := c.Version(ctx); return err },
	"Status":  func(ctx context.Context, c *remote.Client) error { _, err := c.Status(ctx); return err },
	"RuntimeConfig": func(ctx context.Context, c *remote.Client) error {
		_, err := c.CgroupDriver(ctx)
		return err
	},
	"RunPodSandbox": func(ctx context.Context, c *remote.Client) error {
		_, err := c.RunSandbox(ctx, &cri.SandboxConfig{})
		return err
	},
	"CreateContainer": func(ctx context.Context, c *remote.Client) error {
		_, err := c.CreateContainer(ctx, "s", &cri.ContainerConfig{}, &cri.SandboxConfig{})
		return err
	},
	"Exec": func(ctx context.Context, c *remote.Client) error {
		_, err := c.Exec(ctx, "c", nil, cri.StreamOptions{})
		return err
	},
	"Attach": func(ctx context.Context, c *remote.Client) error {
		_, err := c.Attach(ctx, "c", cri.StreamOptions{})
		return err
	},
	"PortForward": func(ctx context.Context, c *remote.Client) error {
		_, err := c.PortForward(ctx, "s", nil)
		return err
	},
	"PullImage": func(ctx context.Context, c *remote.Client) error {
		_, err := c.PullImage(ctx, cri.ImageSpec{}, nil, nil)
		return err
	},
	"ImageStatus": func(ctx context.Context, c *remote.Client) error {
		_, err := c.ImageStatus(ctx, cri.ImageSpec{})
		return err
	},
	"PodSandboxStatus": func(ctx context.Context, c *remote.Client) error {
		_, err := c.SandboxStatus(ctx, "s")
		return err
	},
	"ContainerStatus": func(ctx context.Context, c *remote.Client) error {
		_, err := c.ContainerStatus(ctx, "c")
		return err
	},
}

func TestMissingImageIsErrNotFound(t *testing.T) {
	c := dialStub(t, stubResponses{"ImageStatus": respondAlways(&v1.ImageStatusResponse{}, nil)}, remote.Options{})
	_, err := c.ImageStatus(t.Context(), cri.ImageSpec{Image: "x"})
	assert.ErrorIs(t, err, cri.ErrNotFound)
	assert.EqualError(t, err, "ImageStatus x: not found")
}

// The pod of a container is that of its sandbox; if the sandbox was removed, that of its label.
func TestListSetsPodUIDFromSandboxOrLabel(t *testing.T) {
	label := func(uid string) map[string]string { return map[string]string{cri.LabelPodUID: uid} }
	sandboxes := &v1.ListPodSandboxResponse{Items: []*v1.PodSandbox{
		{Id: "s1", Metadata: &v1.PodSandboxMetadata{Uid: "u1", Name: "web", Namespace: "default"}},
	}}
	containers := &v1.ListContainersResponse{Containers: []*v1.Container{
		{Id: "no label", PodSandboxId: "s1"},
		{Id: "other label", PodSandboxId: "s1", Labels: label("u2")},
		{Id: "no sandbox", PodSandboxId: "gone", Labels: label("u3")},
	}}
	c := dialStub(t, stubResponses{
		"ListPodSandbox":  respondAlways(sandboxes, nil),
		"ListContainers":  respondAlways(containers, nil),
		"ContainerStatus": respondAlways(&v1.ContainerStatusResponse{Status: &v1.ContainerStatus{Id: "x"}}, nil),
	}, remote.Options{})
	before := time.Now()
	s, err := c.List(t.Context())
	require.NoError(t, err)
	assert.WithinRange(t, s.Time, before, time.Now())
	var uids []string
	for _, c := range s.Containers {
		uids = append(uids, c.PodUID)
	}
	assert.Equal(t, []string{"u1", "u1", "u3"}, uids)
	assert.Equal(t, cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}, s.Sandboxes[0].Pod)

	pod, err := c.ListPod(t.Context(), "u1")
	require.NoError(t, err)
	assert.Len(t, pod.Sandboxes, 1)
	assert.Len(t, pod.Containers, 2)
}

func TestListPodFiltersByLabel(t *testing.T) {
	var sandboxes, containers map[string]string
	c := dialStub(t, stubResponses{
		"ListPodSandbox": func(_ context.Context, q any) (any, error) {
			sandboxes = q.(*v1.ListPodSandboxRequest).GetFilter().GetLabelSelector()
			return &v1.ListPodSandboxResponse{Items: []*v1.PodSandbox{
				{Id: "s1", Metadata: &v1.PodSandboxMetadata{Uid: "u1"}, Labels: sandboxes},
			}}, nil
		},
		"ListContainers": func(_ context.Context, q any) (any, error) {
			if f := q.(*v1.ListContainersRequest).GetFilter(); f.GetPodSandboxId() != "s1" { // containers of the sandboxes are listed later
				containers = f.GetLabelSelector()
			}
			return &v1.ListContainersResponse{}, nil
		},
	}, remote.Options{})
	_, err := c.ListPod(t.Context(), "u1")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"io.kubernetes.pod.uid": "u1"}, sandboxes)
	assert.Equal(t, sandboxes, containers)
}

// A containerd that was killed during RunPodSandbox reports the sandbox without a creation time. A client that rejects this
// status could never replace the sandbox.
func TestStatusWithoutCreationTimeIsAccepted(t *testing.T) {
	c := dialStub(t, stubResponses{"PodSandboxStatus": respondAlways(&v1.PodSandboxStatusResponse{Status: &v1.PodSandboxStatus{
		Id: "s", State: v1.PodSandboxState_SANDBOX_NOTREADY,
		Metadata: &v1.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"},
	}}, nil)}, remote.Options{})
	s, err := c.SandboxStatus(t.Context(), "s")
	require.NoError(t, err)
	assert.Equal(t, cri.SandboxNotReady, s.State)
	assert.True(t, s.CreatedAt.IsZero())
}

func TestOversizedResponseIsErrTooLarge(t *testing.T) {
	answer := func(n int) *v1.ExecSyncResponse { return &v1.ExecSyncResponse{Stdout: make([]byte, n)} }
	c := dialStub(t, stubResponses{"ExecSync": func(_ context.Context, q any) (any, error) {
		return answer(int(q.(*v1.ExecSyncRequest).GetTimeout())), nil
	}}, remote.Options{})
	_, err := c.ExecSync(t.Context(), "c", nil, 15<<20*time.Second)
	assert.NoError(t, err)
	_, err = c.ExecSync(t.Context(), "c", nil, 17<<20*time.Second)
	assert.ErrorContains(t, err, "larger than max")

	bounded := cri.WithMaxOutput(t.Context(), 1<<20)
	_, err = c.ExecSync(bounded, "c", nil, 1<<20*time.Second)
	assert.NoError(t, err)
	_, err = c.ExecSync(bounded, "c", nil, 2<<20*time.Second)
	assert.ErrorContains(t, err, "larger than max")
}

func TestCreateRefusesUnknownStopSignal(t *testing.T) {
	c := dialClient(t, "/does/not/matter", remote.Options{})
	_, err := c.CreateContainer(t.Context(), "s", &cri.ContainerConfig{Name: "main", StopSignal: "SIGNOPE"}, nil)
	assert.EqualError(t, err, `CreateContainer main: stop signal "SIGNOPE": unknown`)
}

func TestCheckpoint(t *testing.T) {
	var got *v1.CheckpointContainerRequest
	c := dialStub(t, stubResponses{"CheckpointContainer": func(_ context.Context, q any) (any, error) {
		got = q.(*v1.CheckpointContainerRequest)
		return &v1.CheckpointContainerResponse{}, nil
	}}, remote.Options{})
	require.NoError(t, c.Checkpoint(t.Context(), "c", "/var/x.tar", 1500*time.Millisecond))
	assert.Equal(t, "c", got.GetContainerId())
	assert.Equal(t, "/var/x.tar", got.GetLocation())
	assert.EqualValues(t, 2, got.GetTimeout())

	err := dialStub(t, stubResponses{}, remote.Options{}).Checkpoint(t.Context(), "c", "/var/x.tar", 0)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "CheckpointContainer c: ")
}

// The message has one string for both IP families, separated by a comma, as the kubelet sends it.
func TestSetPodCIDRsJoinsFamilies(t *testing.T) {
	var got string
	c := dialStub(t, stubResponses{"UpdateRuntimeConfig": func(_ context.Context, q any) (any, error) {
		got = q.(*v1.UpdateRuntimeConfigRequest).GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
		return &v1.UpdateRuntimeConfigResponse{}, nil
	}}, remote.Options{})
	require.NoError(t, c.SetPodCIDRs(t.Context(), []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00::/64")}))
	assert.Equal(t, "10.1.2.0/24,fd00::/64", got)
}
