// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddevice_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Timers of synctest bubbles crash the race detector of Go 1.26 on several processors (golang/go#78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

var (
	_ lifecycle.Devices  = (*poddevice.Devices)(nil)
	_ lifecycle.Notifier = (*poddevice.Devices)(nil)
)

// gpus returns a list of containers that each limit one GPU.
func gpus(names ...string) (list []corev1.Container) {
	for _, name := range names {
		list = append(list, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
			"example.com/gpu": resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"), "hugepages-2Mi": resource.MustParse("2Mi"),
			"kubernetes.io/batch-cpu": resource.MustParse("5"),
		}}})
	}
	return list
}

func newPod(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default"}, Spec: corev1.PodSpec{Containers: containers}}
}

func TestFromPodTakesExtendedResourcesOnly(t *testing.T) {
	pod := newPod("p", gpus("main")...)
	pod.Spec.InitContainers = gpus("prepare", "beside")
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[1].RestartPolicy = &always
	converted, err := poddevice.FromPod(pod)
	require.NoError(t, err)
	limits := map[string]int{"example.com/gpu": 1}
	assert.Equal(t, []device.Container{
		{Name: "prepare", Kind: device.Init, Limits: limits}, {Name: "beside", Kind: device.Sidecar, Limits: limits}, {Name: "main", Limits: limits},
	}, converted.Containers)

	for _, bad := range []string{"-1", "65537", "1e18"} {
		pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse(bad)
		_, err = poddevice.FromPod(pod)
		assert.ErrorContains(t, err, "pod default/p, container main: limit ", bad)
	}
}

// The devices of a pod: in the config of its container, in its status, and in the Node.
func TestDevicesOfAPod(t *testing.T) {
	devices, err := poddevice.New(poddevice.Options{})
	require.NoError(t, err)
	plugin := connect(t, devices, "gpu0", "gpu1")
	var changed []string
	devices.Notify(func(uids ...string) { changed = append(changed, uids...) })
	pod := newPod("p", gpus("main", "other")...)
	pod.UID = "u1"
	require.EqualError(t, devices.Container(t.Context(), pod, &pod.Spec.Containers[0], &podspec.Launch{}),
		"start container main of pod default/p: it limits example.com/gpu, and the devices of the pod are not reserved: call Reserve first")
	require.NoError(t, devices.Container(t.Context(), pod, &corev1.Container{Name: "without"}, &podspec.Launch{}))
	require.NoError(t, devices.Reserve(t.Context(), pod))

	launch := &podspec.Launch{Annotations: map[string]string{device.AnnotationDevices: "the agent's value wins"}, Env: []cri.EnvVar{{Name: "A", Value: "1"}}}
	require.NoError(t, devices.Container(t.Context(), pod, &pod.Spec.Containers[0], launch))
	assert.Equal(t, []cri.EnvVar{{Name: "A", Value: "1"}, {Name: "DEVICES", Value: "gpu0"}}, launch.Env)
	assert.Equal(t, "the agent's value wins", launch.Annotations[device.AnnotationDevices])

	require.NoError(t, plugin.SetHealth("gpu0", false))
	assert.Equal(t, []string{"u1"}, changed)
	assert.Equal(t, []corev1.ResourceStatus{{Name: "example.com/gpu", Resources: []corev1.ResourceHealth{
		{ResourceID: "gpu0", Health: corev1.ResourceHealthStatusUnhealthy},
	}}}, devices.Health("u1", "main"))
	assert.Nil(t, devices.Health("u1", "without"))
	capacity, allocatable, removed := devices.Capacity()
	assert.Equal(t, int64(2), capacity.Name("example.com/gpu", resource.DecimalSI).Value())
	assert.Equal(t, int64(1), allocatable.Name("example.com/gpu", resource.DecimalSI).Value())
	assert.Empty(t, removed)

	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"example.com/gpu": resource.MustParse("0"), "example.org/foreign": resource.MustParse("1")}}}
	assert.Equal(t, corev1.ResourceList{"example.org/foreign": resource.MustParse("1")}, devices.WithoutDevices(node).Status.Allocatable)
	assert.Nil(t, (*poddevice.Devices)(nil).WithoutDevices(nil))

	third := newPod("third", gpus("main")...)
	third.UID = "u3"
	var rejection *podstatus.Rejection
	require.ErrorAs(t, devices.Reserve(t.Context(), third), &rejection)
	assert.Equal(t, podstatus.Rejection{
		Reason:  "UnexpectedAdmissionError",
		Message: "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected",
	}, *rejection)
	require.NoError(t, devices.Release(t.Context(), "u1"))
}

// By option, a pod with an unhealthy device is evicted, but not one whose plugin is gone.
func TestUnhealthyDeviceEvictsItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evicted := make(chan string, 10)
		fail := true // the first eviction fails
		devices, err := poddevice.New(poddevice.Options{Unhealthy: poddevice.EvictPod, Evict: func(_ context.Context, uid string, e podstatus.Eviction) error {
			evicted <- uid + " " + e.Reason + ": " + e.Message
			defer func() { fail = false }()
			if fail {
				return errors.New("the record cannot be written")
			}
			return nil
		}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- devices.Run(ctx) }()
		plugin := connect(t, devices, "gpu0", "gpu1")
		for _, uid := range []string{"u1", "u2"} {
			pod := newPod(uid, gpus("main")...)
			pod.UID = types.UID(uid)
			require.NoError(t, devices.Reserve(t.Context(), pod))
		}
		require.NoError(t, plugin.SetHealth("gpu1", false))
		want := "u2 UnhealthyDevice: Device gpu1 of resource example.com/gpu of container main is unhealthy"
		assert.Equal(t, want, <-evicted)
		synctest.Wait()
		time.Sleep(time.Minute)
		assert.Equal(t, want, <-evicted, "the eviction that failed is repeated")
		require.NoError(t, devices.Release(t.Context(), "u2"))
		plugin.Disconnect()
		time.Sleep(10 * time.Minute)
		assert.Empty(t, evicted)
		cancel()
		require.NoError(t, <-done)
	})
}

// With RestartContainer, a container has a time of failure from its first unhealthy device until all its devices are healthy.
func TestFailedAtIsTheTimeOfTheFirstUnhealthyDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devices, err := poddevice.New(poddevice.Options{Unhealthy: poddevice.RestartContainer})
		require.NoError(t, err)
		var _ lifecycle.DeviceFailures = devices
		plugin := connect(t, devices, "gpu0", "gpu1", "gpu2")
		pod := newPod("p", gpus("main", "other")...)
		pod.UID = "u1"
		pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("2")
		require.NoError(t, devices.Reserve(t.Context(), pod))
		require.Zero(t, devices.FailedAt("u1", "main"))
		time.Sleep(time.Minute)
		first := time.Now()
		for _, id := range []string{"gpu0", "gpu1"} {
			require.NoError(t, plugin.SetHealth(id, false))
			time.Sleep(time.Minute)
			assert.Equal(t, first, devices.FailedAt("u1", "main"))
		}
		assert.Zero(t, devices.FailedAt("u1", "other"))
		require.NoError(t, plugin.SetHealth("gpu0", true))
		assert.Equal(t, first, devices.FailedAt("u1", "main"))
		require.NoError(t, plugin.SetHealth("gpu1", true))
		assert.Zero(t, devices.FailedAt("u1", "main"))

		require.NoError(t, plugin.SetHealth("gpu1", false))
		assert.Equal(t, time.Now(), devices.FailedAt("u1", "main"))
		plugin.Disconnect()
		assert.Zero(t, devices.FailedAt("u1", "main"), "the health is unknown without a plugin")
		require.NoError(t, devices.Release(t.Context(), "u1"))
		assert.Zero(t, devices.FailedAt("u1", "main"))
	})
}

// A reaction that cannot work is an error, not silence.
func TestNewRefusesWrongReactions(t *testing.T) {
	_, err := poddevice.New(poddevice.Options{Unhealthy: poddevice.EvictPod})
	require.EqualError(t, err, "poddevice: Options.Evict is nil: it is required where Options.Unhealthy is Evict")
	_, err = poddevice.New(poddevice.Options{Unhealthy: "evict"})
	require.EqualError(t, err, `poddevice: Options.Unhealthy is "evict", want Evict, Restart or nothing`)
}

// connect connects a plugin in memory.
func connect(t *testing.T, devices *poddevice.Devices, ids ...string) *devicetest.Plugin {
	var list []device.Device
	for _, id := range ids {
		list = append(list, device.Device{ID: id, Healthy: true})
	}
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: list})
	feed, err := devices.Allocator().Connect("example.com/gpu", "", plugin)
	require.NoError(t, err)
	require.NoError(t, plugin.Attach(feed))
	return plugin
}

// Without a record, the containers of the runtime say who holds devices. Pods that no source lists lose them.
func TestLostRecordAndUnlistedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runtime := cri.ListerFunc(func(context.Context) (cri.Snapshot, error) {
			return cri.Snapshot{Containers: []cri.Container{
				{PodUID: "u1", Name: "main", State: cri.ContainerRunning, Annotations: map[string]string{device.AnnotationDevices: `{"example.com/gpu":["gpu0"]}`}},
				{PodUID: "u2", Name: "main", State: cri.ContainerExited, Annotations: map[string]string{device.AnnotationDevices: `{"example.com/gpu":["gpu1"]}`}},
			}}, nil
		})
		var unlisted atomic.Bool
		devices, err := poddevice.New(poddevice.Options{
			Runtime: runtime, IsManaged: func(uid string) bool { return uid == "u1" && !unlisted.Load() },
			Allocator: device.Options{Record: filepath.Join(t.TempDir(), "record")},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- devices.Run(ctx) }()
		synctest.Wait()
		assert.Contains(t, devices.Allocator().Allocations(), "u1")
		assert.NotContains(t, devices.Allocator().Allocations(), "u2", "its container has exited")
		time.Sleep(2 * time.Minute)
		assert.Contains(t, devices.Allocator().Allocations(), "u1")
		unlisted.Store(true)
		time.Sleep(2 * time.Minute)
		assert.Empty(t, devices.Allocator().Allocations())
		cancel()
		require.NoError(t, <-done)
	})
}
