// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
)

type (
	stream  = grpc.ServerStreamingServer[api.ListAndWatchResponse]
	answer  = api.ContainerAllocateResponse
	devices = []*api.Device
)

// connectFake connects a plugin that f configures.
func connectFake(t *testing.T, opts plugin.Options, configure func(f *fakePlugin)) (*node, connection) {
	t.Helper()
	n := runHost(t, t.TempDir(), opts)
	f := newFake()
	configure(f)
	f.serve(t, n.path("p.sock"))
	require.NoError(t, n.register(t.Context(), "p.sock"))
	return n, n.await(t)
}

// allocate returns the response of a plugin to Allocate with these containers.
func allocate(t *testing.T, containers ...*answer) (device.Response, error) {
	t.Helper()
	_, c := connectFake(t, plugin.Options{}, func(f *fakePlugin) {
		f.allocate = func(*api.AllocateRequest) (*api.AllocateResponse, error) {
			return &api.AllocateResponse{ContainerResponses: containers}, nil
		}
	})
	return c.plugin.Allocate(t.Context(), []string{"gpu0"})
}

func TestAllocateRejectsInvalidResponses(t *testing.T) {
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprint("k", i)] = "v"
		}
		return m
	}
	for name, test := range map[string]struct {
		want       string
		containers []*answer
	}{
		"none":              {"no containers return in allocation response ", nil},
		"two":               {"has 2 containers, not 1", []*answer{{}, {}}},
		"env name":          {`env variable "A=B"`, []*answer{{Envs: map[string]string{"A=B": "c"}}}},
		"no env name":       {`env variable ""`, []*answer{{Envs: map[string]string{"": "c"}}}},
		"env zero":          {"the value has a zero byte", []*answer{{Envs: map[string]string{"A": "b\x00"}}}},
		"env size":          {"131075 bytes, more than 131071", []*answer{{Envs: map[string]string{"A": strings.Repeat("x", 131073)}}}},
		"env count":         {"4097 env variables, more than 4096", []*answer{{Envs: many(4097)}}},
		"annotation count":  {"4097 annotations, more than 4096", []*answer{{Annotations: many(4097)}}},
		"annotation key":    {"the key has 513 bytes", []*answer{{Annotations: map[string]string{strings.Repeat("k", 513): ""}}}},
		"no annotation key": {"the key has 0 bytes", []*answer{{Annotations: map[string]string{"": "a"}}}},
		"annotation size":   {"the value has 262145 bytes", []*answer{{Annotations: map[string]string{"k": strings.Repeat("v", 262145)}}}},
		"mount relative":    {`mount: host path "lib": not an absolute path`, []*answer{{Mounts: []*api.Mount{{ContainerPath: "/lib", HostPath: "lib"}}}}},
		"mount empty":       {`mount: container path "": not an absolute path`, []*answer{{Mounts: []*api.Mount{{HostPath: "/lib"}}}}},
		"mount upwards":     {`mount: host path "/run/../etc": contains ".."`, []*answer{{Mounts: []*api.Mount{{ContainerPath: "/lib", HostPath: "/run/../etc"}}}}},
		"mount zero":        {"has a zero byte", []*answer{{Mounts: []*api.Mount{{ContainerPath: "/lib\x00", HostPath: "/lib"}}}}},
		"mount long":        {"4097 bytes, more than 4095", []*answer{{Mounts: []*api.Mount{{ContainerPath: "/" + strings.Repeat("x", 4096), HostPath: "/lib"}}}}},
		"mounts contradict": {`two mounts at container path "/lib" contradict each other`, []*answer{{Mounts: []*api.Mount{{ContainerPath: "/lib", HostPath: "/a"}, {ContainerPath: "/lib/", HostPath: "/b"}}}}},
		"device relative":   {`device node "dev/a": container path "dev/a": not an absolute path`, []*answer{{Devices: []*api.DeviceSpec{{ContainerPath: "dev/a", HostPath: "/dev/a", Permissions: "r"}}}}},
		"no permissions":    {"permissions are empty", []*answer{{Devices: []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a"}}}}},
		"permissions":       {`permissions "rx": must consist of r, w and m`, []*answer{{Devices: []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "rx"}}}}},
		"permission twice":  {`permissions "rr"`, []*answer{{Devices: []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "rr"}}}}},
		"nodes contradict":  {`two device nodes at container path "/dev/a"`, []*answer{{Devices: []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "r"}, {ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "rw"}}}}},
		"CDI":               {`CDI device "gpu0": the name must have the form VENDOR/CLASS=NAME`, []*answer{{CdiDevices: []*api.CDIDevice{{Name: "gpu0"}}}}},
		"CDI size":          {"more than 512", []*answer{{CdiDevices: []*api.CDIDevice{{Name: "v/c=" + strings.Repeat("x", 512)}}}}},
		"message":           {"p.sock: rpc error: code = ResourceExhausted desc = grpc: received message larger than max (16777", []*answer{{Envs: map[string]string{"A": strings.Repeat("x", 16<<20)}}}},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := allocate(t, test.containers...)
			require.ErrorContains(t, err, test.want)
			assert.Empty(t, response)
			assert.Less(t, len(err.Error()), 2000)
		})
	}
}

// Paths are cleaned, and identical duplicates are dropped.
func TestAllocateCleansResponses(t *testing.T) {
	response, err := allocate(t, &answer{
		Mounts:     []*api.Mount{{ContainerPath: "/lib//gpu/", HostPath: "/opt/./gpu/", ReadOnly: true}, {ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
		Devices:    []*api.DeviceSpec{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "mrw"}, {ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "mrw"}},
		CdiDevices: []*api.CDIDevice{{Name: "vendor.example/gpu=0"}, {Name: "vendor.example/gpu=0"}},
	})
	require.NoError(t, err)
	assert.Equal(t, device.Response{
		Mounts:     []cri.Mount{{ContainerPath: "/lib/gpu", HostPath: "/opt/gpu", ReadOnly: true}},
		Devices:    []cri.Device{{ContainerPath: "/dev/a", HostPath: "/dev/a", Permissions: "mrw"}},
		CDIDevices: []string{"vendor.example/gpu=0"},
	}, response)
}

// The text of an error is limited. A deadline within the plugin is also one of the call.
func TestCallErrors(t *testing.T) {
	errs := make(chan error, 1)
	_, c := connectFake(t, plugin.Options{}, func(f *fakePlugin) {
		f.allocate = func(*api.AllocateRequest) (*api.AllocateResponse, error) { return nil, <-errs }
	})
	call := func(err error) error {
		errs <- err
		_, err = c.plugin.Allocate(t.Context(), []string{"gpu0"})
		return err
	}
	require.EqualError(t, call(errors.New("device is busy")), "rpc error: code = Unknown desc = device is busy")
	assert.Less(t, len(call(errors.New(strings.Repeat("x", 10<<10))).Error()), 2000)
	require.ErrorIs(t, call(status.Error(codes.DeadlineExceeded, "driver")), context.DeadlineExceeded)
	err := call(status.Error(codes.Canceled, "driver"))
	require.NotErrorIs(t, err, context.Canceled)
	require.Equal(t, codes.Canceled, status.Code(err))
}

// A preferred allocation of no container has no preference. Of several containers the first counts, as in the kubelet.
func TestPreferredResponses(t *testing.T) {
	type response = []*api.ContainerPreferredAllocationResponse
	responses := make(chan response, 1)
	_, c := connectFake(t, plugin.Options{}, func(f *fakePlugin) {
		f.preferred = func(*api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
			return &api.PreferredAllocationResponse{ContainerResponses: <-responses}, nil
		}
	})
	call := func(r response) ([]string, error) {
		responses <- r
		return c.plugin.Preferred(t.Context(), []string{"a", "b"}, nil, 1)
	}
	ids, err := call(nil)
	require.NoError(t, err)
	assert.Nil(t, ids)
	ids, err = call(response{{DeviceIDs: []string{"b", "foreign"}}, {DeviceIDs: []string{"a"}}})
	require.NoError(t, err)
	assert.Equal(t, []string{"b", "foreign"}, ids)
	_, err = call(response{{DeviceIDs: make([]string, 1<<16+1)}})
	require.ErrorContains(t, err, "65537 IDs, more than 65536")
	_, err = c.plugin.Preferred(t.Context(), nil, nil, 1<<40)
	require.ErrorContains(t, err, "out of range")
}

// An invalid list is logged once and changes nothing. A message above the limit ends the stream.
func TestInvalidLists(t *testing.T) {
	log, lists := newLogRecorder(), make(chan devices)
	n, c := connectFake(t, plugin.Options{Logger: slog.New(log)}, func(f *fakePlugin) {
		f.list = func(s stream) error {
			for list := range lists {
				if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
	})
	node := func(id int64) *api.TopologyInfo { return &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: id}}} }
	lists <- devices{{ID: "a", Health: "Healthy", Topology: node(63)}, {ID: "b", Health: "healthy", Topology: node(-1)}}
	c.awaitDevices(t, "a", "b")
	got, _ := c.feed.Devices()
	want := []device.Device{{ID: "a", Healthy: true, Nodes: 1 << 63}, {ID: "b"}}
	assert.Equal(t, want, got)
	for _, invalid := range []devices{
		{{ID: strings.Repeat("x", 1<<20)}}, // logged
		{{ID: ""}},
		{{ID: "a"}, {ID: "a"}},
		{{ID: "a", Topology: node(64)}},
		{{ID: "a", Topology: node(-2)}},
		make(devices, 1<<16+1),
	} {
		for i := range invalid {
			if invalid[i] == nil {
				invalid[i] = &api.Device{ID: fmt.Sprint(i)}
			}
		}
		lists <- invalid
	}
	lists <- devices{{ID: "c"}}
	c.awaitDevices(t, "c")
	_, updates := c.feed.Devices()
	assert.Equal(t, 2, updates, "an invalid list has replaced a valid one")
	const rejected = "list of device plugin is rejected"
	assert.Equal(t, 1, log.count(rejected))
	assert.Equal(t, resource+" "+n.path("p.sock"), log.attr(rejected, "resource")+" "+log.attr(rejected, "socket"))
	assert.Equal(t, `device 0 of the list: ID "`+strings.Repeat("x", 32)+`"... has 1048576 bytes, more than 1024`, log.attr(rejected, "error"))

	lists <- devices{{ID: strings.Repeat("x", 17<<20)}}
	close(lists)
	c.awaitClosed(t)
}

// blockedFeed is a feed whose Update blocks until release is closed.
type blockedFeed struct {
	release chan struct{}
	last    atomic.Int64 // devices of the last list
}

func (b *blockedFeed) Update(devices []device.Device) error {
	<-b.release
	b.last.Store(int64(len(devices)))
	return nil
}

func (b *blockedFeed) Close() {}

// A plugin that sends 10,000 devices without a pause is stopped by flow control, while the feed is blocked.
func TestFastListsNeedNoMemory(t *testing.T) {
	list := make(devices, 10_000)
	for i := range list {
		list[i] = &api.Device{ID: fmt.Sprintf("device-%05d-%s", i, strings.Repeat("x", 60)), Health: api.Healthy}
	}
	feed := &blockedFeed{release: make(chan struct{})}
	var sent atomic.Int64
	finish := make(chan struct{})
	connectFake(t, plugin.Options{Receiver: &receiver{feed: feed, connections: make(chan connection, 1)}}, func(f *fakePlugin) {
		f.list = func(s stream) error {
			for {
				message := &api.ListAndWatchResponse{Devices: list}
				select {
				case <-finish:
					message.Devices = list[:1]
				default:
				}
				if err := s.Send(message); err != nil {
					return err
				}
				sent.Add(1)
			}
		}
	})
	last, since := int64(-1), time.Now()
	require.Eventually(t, func() bool { // the plugin is stopped for a second
		if now := sent.Load(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > time.Second
	}, timeout, 10*time.Millisecond)
	assert.Less(t, last, int64(60), "lists of 750 KiB in buffers")

	before := heap()
	close(feed.release)
	require.Eventually(t, func() bool { return sent.Load() > last+100 }, timeout, tick)
	after := heap()
	t.Logf("%d lists in buffers, heap %d MiB, then %d MiB", last, before>>20, after>>20)
	assert.Less(t, after, before+64<<20)
	close(finish)
	require.Eventually(t, func() bool { return feed.last.Load() == 1 }, timeout, tick)
}

// heap returns the bytes of the live objects.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
