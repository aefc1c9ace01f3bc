// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
)

// recorder is a runtime that records the IDs in its calls.
type recorder struct {
	listingRuntime
	mu    sync.Mutex
	calls []string
	lists int
}

func (r *recorder) recordCall(op, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, op+" "+id)
}

// takeCalls returns the calls since its last use, and the number of List calls.
func (r *recorder) takeCalls() (calls []string, lists int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls, lists = r.calls, r.lists
	r.calls, r.lists = nil, 0
	return calls, lists
}

func (r *recorder) List(ctx context.Context) (cri.Snapshot, error) {
	r.mu.Lock()
	r.lists++
	r.mu.Unlock()
	return r.listingRuntime.List(ctx)
}

func (r *recorder) RunSandbox(context.Context, *cri.SandboxConfig) (string, error) { return "new", nil }

func (r *recorder) StopSandbox(_ context.Context, id string) error {
	r.recordCall("StopSandbox", id)
	return nil
}

func (r *recorder) RemoveSandbox(_ context.Context, id string) error {
	r.recordCall("RemoveSandbox", id)
	return nil
}

func (r *recorder) CreateContainer(_ context.Context, id string, _ *cri.ContainerConfig, _ *cri.SandboxConfig) (string, error) {
	r.recordCall("CreateContainer", id)
	return "made", nil
}

func (r *recorder) StartContainer(_ context.Context, id string) error {
	r.recordCall("StartContainer", id)
	return nil
}

func (r *recorder) StopContainer(_ context.Context, id string, _ time.Duration) error {
	r.recordCall("StopContainer", id)
	return nil
}

func (r *recorder) RemoveContainer(_ context.Context, id string) error {
	r.recordCall("RemoveContainer", id)
	return nil
}

func (r *recorder) SandboxStatus(_ context.Context, id string) (cri.Sandbox, error) {
	r.recordCall("SandboxStatus", id)
	return cri.Sandbox{ID: id}, nil
}

func (r *recorder) ContainerStatus(_ context.Context, id string) (cri.Container, error) {
	r.recordCall("ContainerStatus", id)
	return cri.Container{ID: id}, nil
}

func (r *recorder) ExecSync(_ context.Context, id string, _ []string, _ time.Duration) (cri.ExecResult, error) {
	r.recordCall("ExecSync", id)
	return cri.ExecResult{}, nil
}

func (r *recorder) Exec(_ context.Context, id string, _ []string, _ cri.StreamOptions) (string, error) {
	r.recordCall("Exec", id)
	return "url", nil
}

func (r *recorder) Attach(_ context.Context, id string, _ cri.StreamOptions) (string, error) {
	r.recordCall("Attach", id)
	return "url", nil
}

func (r *recorder) PortForward(_ context.Context, id string, _ []int32) (string, error) {
	r.recordCall("PortForward", id)
	return "url", nil
}

func (r *recorder) ReopenContainerLog(_ context.Context, id string) error {
	r.recordCall("ReopenContainerLog", id)
	return nil
}

func (r *recorder) UpdateContainer(_ context.Context, id string, _ *cri.Resources, _ map[string]string) error {
	r.recordCall("UpdateContainer", id)
	return nil
}

func (r *recorder) UpdateSandbox(_ context.Context, id string, _, _ *cri.Resources) error {
	r.recordCall("UpdateSandbox", id)
	return nil
}

// newSimilarIDs returns a runtime with IDs that share prefixes.
func newSimilarIDs() *recorder {
	return &recorder{listingRuntime: listingRuntime{snapshot: cri.Snapshot{
		Sandboxes: []cri.Sandbox{{ID: "5a110"}, {ID: "5a12"}, {ID: "5b00"}},
		Containers: []cri.Container{
			{ID: "c0ff", SandboxID: "5b00"}, {ID: "c0ffee", SandboxID: "5a110"}, {ID: "cafe", SandboxID: "5b00"},
		},
	}}}
}

// callByID makes each call that concerns one existing object.
func callByID(c v1.RuntimeServiceClient, of string) map[string]func(ctx context.Context, id string) error {
	metadata := &v1.ContainerConfig{Metadata: &v1.ContainerMetadata{}}
	sandboxConfig := &v1.PodSandboxConfig{Metadata: &v1.PodSandboxMetadata{}}
	errorOf := func(_ any, err error) error { return err }
	if of == "sandbox" {
		return map[string]func(context.Context, string) error{
			"StopSandbox": func(ctx context.Context, id string) error {
				return errorOf(c.StopPodSandbox(ctx, &v1.StopPodSandboxRequest{PodSandboxId: id}))
			},
			"RemoveSandbox": func(ctx context.Context, id string) error {
				return errorOf(c.RemovePodSandbox(ctx, &v1.RemovePodSandboxRequest{PodSandboxId: id}))
			},
			"SandboxStatus": func(ctx context.Context, id string) error {
				return errorOf(c.PodSandboxStatus(ctx, &v1.PodSandboxStatusRequest{PodSandboxId: id}))
			},
			"UpdateSandbox": func(ctx context.Context, id string) error {
				return errorOf(c.UpdatePodSandboxResources(ctx, &v1.UpdatePodSandboxResourcesRequest{PodSandboxId: id}))
			},
			"PortForward": func(ctx context.Context, id string) error {
				return errorOf(c.PortForward(ctx, &v1.PortForwardRequest{PodSandboxId: id}))
			},
			"CreateContainer": func(ctx context.Context, id string) error {
				return errorOf(c.CreateContainer(ctx, &v1.CreateContainerRequest{PodSandboxId: id, Config: metadata, SandboxConfig: sandboxConfig}))
			},
		}
	}
	return map[string]func(context.Context, string) error{
		"StartContainer": func(ctx context.Context, id string) error {
			return errorOf(c.StartContainer(ctx, &v1.StartContainerRequest{ContainerId: id}))
		},
		"StopContainer": func(ctx context.Context, id string) error {
			return errorOf(c.StopContainer(ctx, &v1.StopContainerRequest{ContainerId: id}))
		},
		"RemoveContainer": func(ctx context.Context, id string) error {
			return errorOf(c.RemoveContainer(ctx, &v1.RemoveContainerRequest{ContainerId: id}))
		},
		"ContainerStatus": func(ctx context.Context, id string) error {
			return errorOf(c.ContainerStatus(ctx, &v1.ContainerStatusRequest{ContainerId: id}))
		},
		"UpdateContainer": func(ctx context.Context, id string) error {
			return errorOf(c.UpdateContainerResources(ctx, &v1.UpdateContainerResourcesRequest{ContainerId: id, Linux: &v1.LinuxContainerResources{}}))
		},
		"ReopenContainerLog": func(ctx context.Context, id string) error {
			return errorOf(c.ReopenContainerLog(ctx, &v1.ReopenContainerLogRequest{ContainerId: id}))
		},
		"ExecSync": func(ctx context.Context, id string) error {
			return errorOf(c.ExecSync(ctx, &v1.ExecSyncRequest{ContainerId: id}))
		},
		"Exec": func(ctx context.Context, id string) error {
			return errorOf(c.Exec(ctx, &v1.ExecRequest{ContainerId: id}))
		},
		"Attach": func(ctx context.Context, id string) error {
			return errorOf(c.Attach(ctx, &v1.AttachRequest{ContainerId: id}))
		},
	}
}

// Users of crictl type a unique prefix of an ID; an ambiguous prefix must not stop another object.
func TestUniqueIDPrefixIsExpanded(t *testing.T) {
	for _, test := range []struct{ of, typed, want string }{
		{"sandbox", "5b", "5b00"},
		{"sandbox", "5a12", "5a12"},
		{"sandbox", "5a", ""},
		{"sandbox", "c", "c"}, // no sandbox has this prefix: the ID is passed on
		{"container", "ca", "cafe"},
		{"container", "cafe", "cafe"},
		{"container", "c0ff", "c0ff"}, // a full ID, although another ID begins with it
		{"container", "c0ffe", "c0ffee"},
		{"container", "c0", ""},
		{"container", "cafeteria", "cafeteria"},
		{"container", "", ""},
	} {
		rt := newSimilarIDs()
		client, _, _ := startServer(t, rt, criserver.Options{})
		for op, call := range callByID(client, test.of) {
			err := call(t.Context(), test.typed)
			calls, _ := rt.takeCalls()
			if test.want == "" && test.typed != "" {
				assert.Equal(t, codes.InvalidArgument, status.Code(err), "%s %s", op, test.typed)
				assert.ErrorContains(t, err, fmt.Sprintf(`%s ID %q is an ambiguous prefix of 2 IDs`, test.of, test.typed))
				assert.Empty(t, calls)
				continue
			}
			require.NoError(t, err, "%s %s", op, test.typed)
			assert.Equal(t, []string{op + " " + test.want}, calls, test.typed)
		}
	}
}

// Calls with full IDs, as the kubelet makes them, do not list the runtime repeatedly.
func TestFullIDNeedsNoList(t *testing.T) {
	rt := newSimilarIDs()
	client, _, _ := startServer(t, rt, criserver.Options{})
	countLists := func(id string) int {
		_, err := client.ContainerStatus(t.Context(), &v1.ContainerStatusRequest{ContainerId: id})
		require.NoError(t, err)
		_, lists := rt.takeCalls()
		return lists
	}
	assert.Equal(t, 1, countLists("cafe"))
	assert.Zero(t, countLists("cafe"))
	assert.Zero(t, countLists("c0ffee"))
	require.NoError(t, callByID(client, "sandbox")["CreateContainer"](t.Context(), "5b00"))
	assert.Zero(t, countLists("made"), "the ID of a created container is known")
	assert.Equal(t, 1, countLists("caf"), "a prefix is resolved with a list each time")

	rt.err = context.DeadlineExceeded // lists fail
	assert.Equal(t, 1, countLists("unheard of"), "an unknown ID is passed on if the list fails")
}

func TestListFilterAcceptsIDPrefix(t *testing.T) {
	rt := newSimilarIDs()
	client, _, _ := startServer(t, rt, criserver.Options{})
	containers := func(f *v1.ContainerFilter) (ids []string) {
		r, err := client.ListContainers(t.Context(), &v1.ListContainersRequest{Filter: f})
		require.NoError(t, err)
		for _, c := range r.GetContainers() {
			ids = append(ids, c.GetId())
		}
		return ids
	}
	assert.Equal(t, []string{"c0ffee"}, containers(&v1.ContainerFilter{Id: "c0ffe"}))
	assert.Equal(t, []string{"c0ff", "cafe"}, containers(&v1.ContainerFilter{PodSandboxId: "5b"}))
	assert.Empty(t, containers(&v1.ContainerFilter{Id: "c0ffe", PodSandboxId: "5b"}))
	assert.Empty(t, containers(&v1.ContainerFilter{Id: "x"}))

	sandboxes, err := client.ListPodSandbox(t.Context(), &v1.ListPodSandboxRequest{Filter: &v1.PodSandboxFilter{Id: "5b"}})
	require.NoError(t, err)
	require.Len(t, sandboxes.GetItems(), 1)
	sandboxes, err = client.ListPodSandbox(t.Context(), &v1.ListPodSandboxRequest{Filter: &v1.PodSandboxFilter{Id: "5a"}})
	require.NoError(t, err)
	assert.Empty(t, sandboxes.GetItems(), "an ambiguous prefix matches no sandbox")

	stats, err := client.ContainerStats(t.Context(), &v1.ContainerStatsRequest{ContainerId: "ca"})
	require.NoError(t, err)
	assert.Equal(t, "cafe", stats.GetStats().GetAttributes().GetId())
	list, err := client.ListContainerStats(t.Context(), &v1.ListContainerStatsRequest{Filter: &v1.ContainerStatsFilter{PodSandboxId: "5b"}})
	require.NoError(t, err)
	assert.Len(t, list.GetStats(), 2)
	sandbox, err := client.PodSandboxStats(t.Context(), &v1.PodSandboxStatsRequest{PodSandboxId: "5b"})
	require.NoError(t, err)
	assert.Equal(t, "5b00", sandbox.GetStats().GetAttributes().GetId())
	all, err := client.ListPodSandboxStats(t.Context(), &v1.ListPodSandboxStatsRequest{Filter: &v1.PodSandboxStatsFilter{Id: "5b"}})
	require.NoError(t, err)
	assert.Len(t, all.GetStats(), 1)
}

// setIDs sets the IDs in a request or filter, and reports whether there are any.
func setIDs(request reflect.Value, ids map[string]string) (found bool) {
	for name, id := range ids {
		if field := request.Elem().FieldByName(name); field.IsValid() {
			field.SetString(id)
			found = true
		}
	}
	return found
}

// Every request with an ID is covered, including those of later protocol versions.
func TestEveryIDFieldOfTheProtocolIsExpanded(t *testing.T) {
	client, _, _ := startServer(t, newSimilarIDs(), criserver.Options{})
	calls := reflect.ValueOf(client)
	ambiguous, unique := 0, 0
	for i := range calls.NumMethod() {
		name := calls.Type().Method(i).Name
		request := reflect.New(calls.Method(i).Type().In(1).Elem())
		has := setIDs(request, map[string]string{"ContainerId": "c0", "PodSandboxId": "5a"})
		filter := request.Elem().FieldByName("Filter")
		filters := false
		if filter.IsValid() {
			filter.Set(reflect.New(filter.Type().Elem()))
			filters = setIDs(filter, map[string]string{"Id": "5b"})
			if setIDs(filter, map[string]string{"PodSandboxId": "5a11"}) {
				filters = setIDs(filter, map[string]string{"Id": "c0ffe"})
			}
		}
		if !has && !filters {
			continue
		}
		out := calls.Method(i).Call([]reflect.Value{reflect.ValueOf(t.Context()), request})
		err, _ := reflect.TypeAssert[error](out[1])
		stream, streams := reflect.TypeAssert[grpc.ClientStream](out[0])
		if streams && err == nil {
			err = stream.RecvMsg(&v1.VersionResponse{}) // the runtime has no metrics
		}
		switch {
		case status.Code(err) == codes.Unimplemented:
		case filters:
			unique++
			require.NoError(t, err, name)
			assert.Regexp(t, `id:\s?"(c0ffee|5b00)"`, fmt.Sprint(out[0].Interface()), name)
		default:
			ambiguous++
			assert.ErrorContains(t, err, "is an ambiguous prefix of 2 IDs", name)
		}
	}
	assert.Equal(t, []int{17, 4}, []int{ambiguous, unique})
}
