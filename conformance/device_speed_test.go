// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/poddevice"
)

// deviceInputOf returns a request for count of the devices, spread over the NUMA nodes of a machine. Every second device is in use.
func deviceInputOf(devices, nodes, count int) deviceInput {
	in := deviceInput{Pool: device.Pool{Resource: devicemanager.ConformanceResource, InUse: map[string]bool{}}, Machine: nodes}
	in.Request = device.Request{PodUID: devicemanager.ConformancePodUID, Container: devicemanager.ConformanceContainer, Count: count, Nodes: 1}
	for i := range devices {
		d := device.Device{ID: fmt.Sprintf("device-%05d", i), Healthy: true, Nodes: 1 << (i % nodes)}
		in.Pool.Devices = append(in.Pool.Devices, d)
		if i/nodes%2 == 0 {
			in.Pool.InUse[d.ID] = true
		}
	}
	return in
}

// Compares the time to choose 8 of 10,000 devices, and to find the hints of 512 devices on 8 NUMA nodes.
func BenchmarkDevices(b *testing.B) {
	pick, hints := deviceInputOf(10_000, 2, 8), deviceInputOf(512, 8, 8)
	_, kubeletPick := pick.kubelet().Prepared()
	kubeletHints, _ := hints.kubelet().Prepared()
	for _, bench := range []struct {
		name string
		run  func() error
	}{
		{"Pick/kubelet", func() error { _, err := kubeletPick(context.Background()); return err }},
		{"Pick/ours", func() error {
			choice, err := device.Pick(&pick.Pool, pick.Request)
			choice.Complete(nil)
			return err
		}},
		{"Hints/kubelet", func() error { kubeletHints(); return nil }},
		{"Hints/ours", func() error {
			_, err := device.Hints(&hints.Pool, hints.Request, hints.machine())
			return err
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bench.run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// makeDevicePod returns a pod whose containers limit two devices each, as in deviceResources[0].
func makeDevicePod(i, containers int) *corev1.Pod {
	name := fmt.Sprint("pod-", i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)), Name: name, Namespace: "default"}}
	for c := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", c), Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceName(deviceResources[0]): *resource.NewQuantity(2, resource.DecimalSI)},
		}})
	}
	return pod
}

// makeSpeedDevices returns healthy devices on two NUMA nodes.
func makeSpeedDevices(count int) (list []*pluginapi.Device) {
	for i := range count {
		list = append(list, &pluginapi.Device{ID: fmt.Sprintf("GPU-%012d", i), Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{
			Nodes: []*pluginapi.NUMANode{{ID: int64(i % 2)}},
		}})
	}
	return list
}

// memoryNode is a node of both sides, with a plugin in memory that responds at once.
type memoryNode struct {
	kubelet  *devicemanager.ConformanceNode
	ours     *poddevice.Devices
	adopting *poddevice.Devices // also writes the checkpoint of a kubelet
}

// newMemoryNode returns a node whose checkpoints and records are in dir, with devices and running pods that have containers with two devices each.
func newMemoryNode(b *testing.B, dir string, devices, pods, containers int) *memoryNode {
	theirs := &devicemanager.ConformancePlugin{Name: deviceResources[0], Socket: "/a.sock", Response: func([]string) (*pluginapi.ContainerAllocateResponse, error) {
		return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": "1"}}, nil
	}}
	require.NoError(b, os.MkdirAll(filepath.Join(dir, "kubelet"), 0o700))
	kubelet, err := devicemanager.NewConformanceNode(filepath.Join(dir, "kubelet"), 2, "none", "container")
	require.NoError(b, err)
	require.NoError(b, kubelet.Connect(b.Context(), theirs))
	kubelet.List(theirs, makeSpeedDevices(devices))
	n := &memoryNode{
		kubelet: kubelet,
		ours:    newMemoryDevices(b, theirs, devices, device.Options{Record: filepath.Join(dir, "ours", "record")}),
		adopting: newMemoryDevices(b, theirs, devices, device.Options{
			Record: filepath.Join(dir, "adopting", "record"), Export: plugin.ExportTo(filepath.Join(dir, "adopting", plugin.CheckpointName)),
		}),
	}
	for i := range pods {
		pod := makeDevicePod(i, containers)
		require.NoError(b, errors.Join(n.admitToKubelet(b.Context(), pod), n.ours.Reserve(b.Context(), pod), n.adopting.Reserve(b.Context(), pod)))
	}
	return n
}

// newMemoryDevices returns Devices with a plugin that lists count devices.
func newMemoryDevices(b *testing.B, theirs *devicemanager.ConformancePlugin, count int, opts device.Options) *poddevice.Devices {
	ours, err := poddevice.New(poddevice.Options{Allocator: opts})
	require.NoError(b, err)
	feed, err := ours.Allocator().Connect(deviceResources[0], "/a.sock", plainPlugin{ourPlugin{theirs}})
	require.NoError(b, err)
	var list []device.Device
	for _, d := range makeSpeedDevices(count) {
		list = append(list, device.Device{ID: d.ID, Healthy: true, Nodes: 1 << d.Topology.Nodes[0].ID})
	}
	require.NoError(b, feed.Update(list))
	return ours
}

// plainPlugin is a plugin that requests no other call than Allocate.
type plainPlugin struct{ ourPlugin }

func (plainPlugin) Options() device.PluginOptions { return device.PluginOptions{} }

func (n *memoryNode) admitToKubelet(ctx context.Context, pod *corev1.Pod) error {
	if reason, message := n.kubelet.Admit(ctx, pod); reason != "" {
		return errors.New(reason + ": " + message)
	}
	return nil
}

// shortDir returns a directory with a short path in parent, for sockets.
func shortDir(b *testing.B, parent string) string {
	dir, err := os.MkdirTemp(parent, "conf")
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, os.RemoveAll(dir)) })
	return dir
}

// Compares List of the podresources API over a socket, with 250 pods of two containers with two devices each.
func BenchmarkPodResourcesList(b *testing.B) {
	dir := shortDir(b, "/dev/shm")
	n := newMemoryNode(b, dir, 1000, 250, 2)
	theirs, stopTheirs := serveKubeletResources(b, n.kubelet, filepath.Join(dir, "kr.sock"))
	defer stopTheirs()
	var pods []*corev1.Pod
	for i := range 250 {
		pods = append(pods, makeDevicePod(i, 2))
	}
	ours, stopOurs := serveOurResources(b, n.ours.Allocator(), func() []*corev1.Pod { return pods }, filepath.Join(dir, "or.sock"))
	defer stopOurs()
	list := func(b *testing.B, client podresourcesv1.PodResourcesListerClient) {
		b.ReportAllocs()
		for b.Loop() {
			response, err := client.List(b.Context(), &podresourcesv1.ListPodResourcesRequest{})
			if err != nil || len(response.GetPodResources()) != 250 || len(response.GetPodResources()[0].GetContainers()[1].GetDevices()) != 2 {
				b.Fatal(err, response)
			}
		}
	}
	b.Run("kubelet", func(b *testing.B) { list(b, theirs) })
	b.Run("ours", func(b *testing.B) { list(b, ours) })
}

// Compares the admission of a pod with two devices beside 100 such pods, with the checkpoint and the record on a disk and in memory. The plugin
// responds at once. An agent that takes turns with a kubelet also writes the checkpoint of a kubelet.
func BenchmarkDeviceAdmission(b *testing.B) {
	for name, dir := range map[string]string{"disk": b.TempDir(), "memory": shortDir(b, "/dev/shm")} {
		n := newMemoryNode(b, dir, 256, 100, 1)
		pod := makeDevicePod(100, 1)
		b.Run(name+"/kubelet", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := n.admitToKubelet(b.Context(), pod); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				n.kubelet.Remove(string(pod.UID))
				b.StartTimer()
			}
		})
		for side, ours := range map[string]*poddevice.Devices{"ours": n.ours, "ours, for a kubelet": n.adopting} {
			b.Run(name+"/"+side, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := ours.Reserve(b.Context(), pod); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					require.NoError(b, ours.Release(b.Context(), string(pod.UID)))
					b.StartTimer()
				}
			})
		}
	}
}

// healthSide is one side of BenchmarkDeviceHealth, with a plugin on a socket.
type healthSide struct {
	plugin      *socketPlugin
	counts      *devicemanager.ConformanceCounts
	allocatable func() int64
	changed     chan struct{} // receives after each change of the health of a pod's device
	health      func() []corev1.ResourceStatus
	lists       int64
}

// connect serves the plugin in dir, and registers it.
func (s *healthSide) connect(b *testing.B, dir string) {
	s.plugin = &socketPlugin{resource: deviceResources[0], endpoint: "a.sock", options: &pluginapi.DevicePluginOptions{}, devices: makeSpeedDevices(100)}
	s.plugin.serve(b, dir)
	b.Cleanup(s.plugin.stop)
	conn := dialSocket(b, filepath.Join(dir, "kubelet.sock"))
	defer conn.Close()
	require.NoError(b, s.plugin.register(b.Context(), conn))
	s.lists = 1
	awaitCount(b, "lists", &s.counts.Lists, s.lists)
}

func newKubeletHealth(b *testing.B) *healthSide {
	dir, pod := shortDir(b, "/dev/shm"), makeDevicePod(0, 1)
	node, err := devicemanager.NewConformanceSocketNode(dir, 2, "none", "container")
	require.NoError(b, err)
	s := &healthSide{counts: node.Counts(), changed: make(chan struct{})}
	s.connect(b, dir)
	reason, _ := node.Admit(b.Context(), pod)
	require.Empty(b, reason)
	stopped := make(chan struct{})
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			select {
			case <-node.Manager().Updates():
				s.changed <- struct{}{}
			case <-stopped:
				return
			}
		}
	})
	b.Cleanup(func() { close(stopped); forwarding.Wait(); assert.NoError(b, node.Stop()) })
	s.allocatable = func() int64 {
		_, allocatable, _ := node.Capacity()
		q := allocatable[corev1.ResourceName(deviceResources[0])]
		return q.Value()
	}
	s.health = func() []corev1.ResourceStatus {
		status := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c0"}}}
		node.Manager().UpdateAllocatedResourcesStatus(klog.Logger{}, pod, &status)
		return status.ContainerStatuses[0].AllocatedResourcesStatus
	}
	return s
}

func newOurHealth(b *testing.B) *healthSide {
	dir, pod := shortDir(b, "/dev/shm"), makeDevicePod(0, 1)
	ours, err := poddevice.New(poddevice.Options{Allocator: device.Options{Record: filepath.Join(dir, "record")}})
	require.NoError(b, err)
	s := &healthSide{counts: &devicemanager.ConformanceCounts{}, changed: make(chan struct{}, 1)}
	host, err := plugin.New(plugin.Options{Dir: dir, Receiver: countingReceiver{ours.Allocator(), s.counts}})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(b, host.Run(ctx)) })
	running.Go(func() { assert.NoError(b, ours.Run(ctx)) })
	b.Cleanup(func() { cancel(); running.Wait() })
	s.connect(b, dir)
	require.NoError(b, ours.Reserve(b.Context(), pod))
	ours.Notify(func(...string) { s.changed <- struct{}{} })
	s.allocatable = func() int64 {
		_, allocatable, _ := ours.Capacity()
		q := allocatable[corev1.ResourceName(deviceResources[0])]
		return q.Value()
	}
	s.health = func() []corev1.ResourceStatus { return ours.Health(string(pod.UID), "c0") }
	return s
}

// flip changes the health of a device of the pod in each iteration. The measured time ends when the change of the pod is reported and shown returns the
// new health.
func (s *healthSide) flip(b *testing.B, shown func() (healthy bool)) {
	held := string(s.health()[0].Resources[0].ResourceID)
	for b.Loop() {
		devices := makeSpeedDevices(100)
		healthy := s.lists%2 == 0
		if !healthy {
			for _, d := range devices {
				if d.ID == held {
					d.Health = pluginapi.Unhealthy
				}
			}
		}
		s.plugin.list(devices)
		select {
		case <-s.changed:
		case <-time.After(socketTimeout):
			b.Fatal("no change is reported")
		}
		if shown() != healthy {
			b.Fatal("the change is reported, and not shown")
		}
		b.StopTimer()
		s.lists++
		awaitCount(b, "lists", &s.counts.Lists, s.lists) // the kubelet has written its checkpoint
		b.StartTimer()
	}
}

// Compares the time from the change of a device's health in a plugin with 100 devices on a socket until the capacity has it, and until the status of the
// pod has it. The kubelet is read when it reports the change of the pod: it reports no change of the capacity.
func BenchmarkDeviceHealth(b *testing.B) {
	for _, side := range []struct {
		name string
		make func(*testing.B) *healthSide
	}{{"kubelet", newKubeletHealth}, {"ours", newOurHealth}} {
		s := side.make(b)
		b.Run("Capacity/"+side.name, func(b *testing.B) {
			s.flip(b, func() bool { return s.allocatable() == 100 })
		})
		b.Run("Pod/"+side.name, func(b *testing.B) {
			s.flip(b, func() bool {
				return !slices.ContainsFunc(s.health()[0].Resources, func(d corev1.ResourceHealth) bool { return d.Health != corev1.ResourceHealthStatusHealthy })
			})
		})
	}
}
