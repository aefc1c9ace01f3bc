// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/plugin"
)

// allocatorNode is a host whose plugins are connected to a device.Allocator.
type allocatorNode struct {
	*node
	*device.Allocator
}

// runAllocator runs a host with an allocator whose calls have short deadlines.
func runAllocator(t *testing.T) *allocatorNode {
	t.Helper()
	const short = 300 * time.Millisecond
	a, err := device.New(device.Options{Timeouts: device.Timeouts{Preferred: short, Allocate: short, PreStart: short}})
	require.NoError(t, err)
	return &allocatorNode{runHost(t, t.TempDir(), plugin.Options{Receiver: a}), a}
}

// connect serves a plugin that f configures, registers it, and waits until count devices are allocatable.
func (n *allocatorNode) connect(t *testing.T, name string, count int, configure func(f *fakePlugin)) *fakePlugin {
	t.Helper()
	f := newFake()
	configure(f)
	socket := strings.ReplaceAll(name, "/", "_")
	f.serve(t, n.path(socket))
	require.NoError(t, n.request(t.Context(), newRequest(name, socket)))
	n.awaitAllocatable(t, name, count)
	return f
}

func (n *allocatorNode) awaitAllocatable(t *testing.T, name string, count int) {
	t.Helper()
	require.Eventually(t, func() bool { return n.allocatable(name) == count }, timeout, tick, "%d devices of %s", count, name)
}

// allocatable returns the number of allocatable devices, or -1 for an unknown resource.
func (n *allocatorNode) allocatable(name string) int {
	for _, r := range n.Resources() {
		if r.Name == name {
			return r.Allocatable
		}
	}
	return -1
}

func newPod(uid, resource string, count int) device.Pod {
	return device.Pod{UID: uid, Namespace: "default", Name: uid, Containers: []device.Container{{Name: "main", Limits: map[string]int{resource: count}}}}
}

// respondRaw returns a service in which Allocate sends count messages.
func respondRaw(count int) *grpc.ServiceDesc {
	desc := api.DevicePlugin_ServiceDesc
	desc.Methods = slices.DeleteFunc(slices.Clone(desc.Methods), func(m grpc.MethodDesc) bool { return m.MethodName == "Allocate" })
	desc.Streams = append(slices.Clone(desc.Streams), grpc.StreamDesc{StreamName: "Allocate", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		if err := s.RecvMsg(&api.AllocateRequest{}); err != nil {
			return err
		}
		for range count {
			if err := s.SendMsg(&api.AllocateResponse{ContainerResponses: []*answer{{}}}); err != nil {
				return err
			}
		}
		return nil
	}})
	return &desc
}

// A pod of a hostile plugin gets an error that names the resource or the socket. It holds no device then, and a pod of another plugin gets
// its device meanwhile.
func TestHostilePluginFailsOnlyItsPods(t *testing.T) {
	hang := func(f *fakePlugin, preferred bool) {
		f.script = devicetest.NewPlugin(devicetest.Options{
			Devices: []device.Device{{ID: "gpu0", Healthy: true}}, Calls: device.PluginOptions{Preferred: preferred, PreStart: true},
		})
		f.script.SetFaults(devicetest.Faults{
			Preferred: func(ctx context.Context, _, _ []string, _ int, _ func() ([]string, error)) ([]string, error) {
				return nil, devicetest.Hang(ctx)
			},
			Allocate: func(ctx context.Context, _ []string, _ func() (device.Response, error)) (device.Response, error) {
				return device.Response{}, devicetest.Hang(ctx)
			},
		})
	}
	list := func(send ...*api.ListAndWatchResponse) func(stream) error {
		return func(s stream) error {
			for _, message := range send {
				if err := s.Send(message); err != nil {
					return err
				}
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
	}
	for name, test := range map[string]struct {
		configure func(f *fakePlugin)
		count     int // allocatable devices
		want      string
	}{
		"hangs in GetPreferredAllocation": {func(f *fakePlugin) { hang(f, true) }, 1, "the plugin of resource vendor.example/bad did not answer GetPreferredAllocation in time"},
		"hangs in Allocate":               {func(f *fakePlugin) { hang(f, false) }, 1, "the plugin of resource vendor.example/bad did not answer Allocate in time"},
		"sends no list":                   {func(f *fakePlugin) { f.list = list() }, 0, "the device plugin of resource vendor.example/bad has not listed its devices"},
		"ends the stream at once":         {func(f *fakePlugin) { f.list = func(stream) error { return nil } }, 0, "the device plugin of resource vendor.example/bad has not listed its devices"},
		"sends only invalid lists": {func(f *fakePlugin) {
			f.list = list(&api.ListAndWatchResponse{Devices: devices{{ID: strings.Repeat("x", 1<<20)}}})
		}, 0, "the device plugin of resource vendor.example/bad has not listed its devices"},
		"sends an empty list":          {func(f *fakePlugin) { f.list = list(&api.ListAndWatchResponse{}) }, 0, "no healthy devices present; cannot allocate unhealthy devices vendor.example/bad"},
		"answers Allocate twice":       {func(f *fakePlugin) { f.desc = respondRaw(2) }, 1, "vendor.example_bad: rpc error: code = Internal desc = cardinality violation"},
		"answers Allocate without end": {func(f *fakePlugin) { f.desc = respondRaw(1 << 30) }, 1, "vendor.example_bad: rpc error: code = Internal desc = cardinality violation"},
		"does not answer Allocate":     {func(f *fakePlugin) { f.desc = respondRaw(0) }, 1, "vendor.example_bad: rpc error: code = Internal desc = cardinality violation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := runAllocator(t)
			n.connect(t, "vendor.example/good", 1, func(*fakePlugin) {})
			n.connect(t, "vendor.example/bad", test.count, test.configure)
			refused := make(chan error, 1)
			go func() {
				err := n.Reserve(t.Context(), newPod("bad", "vendor.example/bad", 1))
				for begin := time.Now(); err != nil && !strings.Contains(err.Error(), test.want) && time.Since(begin) < timeout; {
					time.Sleep(tick) // the list may not have arrived
					err = n.Reserve(t.Context(), newPod("bad", "vendor.example/bad", 1))
				}
				refused <- err
			}()
			require.NoError(t, n.Reserve(t.Context(), newPod("good", "vendor.example/good", 1)))
			err := <-refused
			require.ErrorContains(t, err, test.want)
			assert.Less(t, len(err.Error()), 1000)
			require.Len(t, n.Claims(), 1, "only the good pod holds a device")
		})
	}
}

// PreStartContainer hangs: the container is not started, and the pod keeps its device.
func TestHungPreStart(t *testing.T) {
	n := runAllocator(t)
	n.connect(t, resource, 1, func(f *fakePlugin) {
		f.script = devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu0", Healthy: true}}, Calls: device.PluginOptions{PreStart: true}})
		f.script.SetFaults(devicetest.Faults{PreStart: func(ctx context.Context, _ []string, _ func() error) error { return devicetest.Hang(ctx) }})
	})
	require.NoError(t, n.Reserve(t.Context(), newPod("p", resource, 1)))
	_, err := n.Start(t.Context(), "p", "main")
	require.ErrorContains(t, err, "device plugin PreStartContainer rpc failed with err: rpc error: code = DeadlineExceeded")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Len(t, n.Claims(), 1)
}

// A plugin dies after its list, or before its Allocate while the plugin of another resource is called. The pod holds no device then.
func TestPluginDiesBeforeAllocate(t *testing.T) {
	n := runAllocator(t)
	dying := n.connect(t, "vendor.example/b", 1, func(*fakePlugin) {})
	n.connect(t, "vendor.example/a", 1, func(f *fakePlugin) {
		f.allocate = func(*api.AllocateRequest) (*api.AllocateResponse, error) {
			dying.stop()
			for n.allocatable("vendor.example/b") > 0 {
				time.Sleep(tick)
			}
			return &api.AllocateResponse{ContainerResponses: []*answer{{}}}, nil
		}
	})
	pod := newPod("p", "vendor.example/a", 1)
	pod.Containers[0].Limits["vendor.example/b"] = 1
	require.EqualError(t, n.Reserve(t.Context(), pod), "allocate devices of resource vendor.example/b for pod default/p: its plugin is not connected any more")
	assert.Empty(t, n.Claims())
	require.ErrorContains(t, n.Reserve(t.Context(), newPod("q", "vendor.example/b", 1)),
		"Allocate failed due to no healthy devices present; cannot allocate unhealthy devices vendor.example/b")
	assert.Empty(t, n.Claims())
}

// Preferred IDs that were not offered are ignored: unknown ones, those of another pod, duplicates, and too many.
func TestPreferredDevicesThatWereNotOffered(t *testing.T) {
	n := runAllocator(t)
	n.connect(t, resource, 4, func(f *fakePlugin) {
		f.script = devicetest.NewPlugin(devicetest.Options{Calls: device.PluginOptions{Preferred: true}, Devices: []device.Device{
			{ID: "a", Healthy: true}, {ID: "b", Healthy: true}, {ID: "c", Healthy: true}, {ID: "d", Healthy: true}, {ID: "broken"},
		}})
		f.preferred = func(*api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
			ids := []string{"", "foreign", strings.Repeat("x", 1<<20), "broken", "d", "d", "d", "c", "b", "a"}
			return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
		}
	})
	given := []string{}
	for i, want := range []string{"d", "c", "b", "a"} {
		uid := fmt.Sprint("pod", i)
		require.NoError(t, n.Reserve(t.Context(), newPod(uid, resource, 1)))
		devices := n.Allocations()[uid]["main"][resource]
		require.Len(t, devices, 1)
		assert.Equal(t, want, devices[0].ID)
		given = append(given, devices[0].ID)
	}
	assert.Len(t, given, 4)
}

// The concurrent calls of one plugin are limited, so that the messages of many pods need little memory.
func TestConcurrentCallsAreLimited(t *testing.T) {
	var running, most [2]atomic.Int64
	release := make(chan struct{})
	count := func(at int) {
		now := running[at].Add(1)
		for last := most[at].Load(); now > last && !most[at].CompareAndSwap(last, now); last = most[at].Load() {
		}
		<-release
		running[at].Add(-1)
	}
	_, c := connectFake(t, plugin.Options{}, func(f *fakePlugin) {
		f.preferred = func(*api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
			count(0)
			return &api.PreferredAllocationResponse{}, nil
		}
		f.allocate = func(*api.AllocateRequest) (*api.AllocateResponse, error) {
			count(1)
			return &api.AllocateResponse{ContainerResponses: []*answer{{}}}, nil
		}
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { _, err := c.plugin.Preferred(t.Context(), []string{"a"}, nil, 1); assert.NoError(t, err) })
		wg.Go(func() { _, err := c.plugin.Allocate(t.Context(), []string{"a"}); assert.NoError(t, err) })
	}
	require.Eventually(t, func() bool { return running[0].Load() == 2 && running[1].Load() == 16 }, timeout, tick)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.plugin.Allocate(ctx, []string{"a"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(release)
	wg.Wait()
	assert.Equal(t, [2]int64{2, 16}, [2]int64{most[0].Load(), most[1].Load()})
}
