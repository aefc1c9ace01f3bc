// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

var (
	_ lifecycle.Devices        = (*placement.Placement)(nil)
	_ lifecycle.DeviceFailures = (*placement.Placement)(nil)
	_ lifecycle.Notifier       = (*placement.Placement)(nil)
	_ lifecycle.StartPreparer  = (*placement.Placement)(nil)
)

// node is a node whose containers exist in memory only.
type node struct {
	t        *testing.T
	machine  string // for topology.Parse
	policy   device.Policy
	options  map[string]string // of policy
	near     [2]int            // two NUMA nodes that are closer to each other than others
	record   string
	config   cpus.Config
	memory   numa.Config // of the memory policy; zero: no policy
	files    numa.AllocatorOptions
	podScope bool
	resizes  bool          // ResizeCPUs and ResizeMemory
	podLevel bool          // the gate PodLevelResourceManagers
	foreign  string        // UID of a pod of another agent
	listed   string        // UID of a pod that a source lists and whose containers do not exist
	active   []*corev1.Pod // nil: Options.Active is nil

	placed  *placement.Placement
	devices *poddevice.Devices

	mu           sync.Mutex
	pods         map[string]cri.Pod // by UID
	notify       []func(uids ...string)
	pinned       []cpus.Pinning
	memoryPinned []numa.Pinning
	asked        int               // reservations that device.Hooks.Reserved has reported
	cpus         map[string]string // cpuset.cpus that was written, by container ID
	mems         map[string]string // cpuset.mems at the start, by container ID
	hung         bool              // calls of UpdateContainer hang
}

func newNode(t *testing.T, machine string) *node {
	return &node{
		t: t, machine: machine, record: filepath.Join(t.TempDir(), "cpus"), pods: map[string]cri.Pod{}, cpus: map[string]string{}, mems: map[string]string{},
		config: cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000},
	}
}

// start starts an agent of the node. The returned function ends it.
func (n *node) start() (stop func()) {
	machine, err := topology.Parse(n.machine)
	require.NoError(n.t, err)
	aligned := device.Topology{Policy: n.policy, Options: n.options, PodScope: n.podScope, PodLevel: n.podLevel}
	n.config.Topology, n.config.Gates.PodLevel, n.memory.PodLevel = n.policy, n.podLevel, n.podLevel
	for i := range machine.Nodes {
		aligned.Nodes = append(aligned.Nodes, device.NUMANode{ID: machine.Nodes[i].ID, Distances: machine.Nodes[i].Distances})
	}
	if a, b := n.near[0], n.near[1]; a != b {
		aligned.Nodes[a].Distances[b], aligned.Nodes[b].Distances[a] = 11, 11
	}
	n.devices, err = poddevice.New(poddevice.Options{Allocator: device.Options{
		Topology: aligned, Hooks: device.Hooks{Reserved: func(device.Reservation) { n.asked++ }},
	}})
	require.NoError(n.t, err)
	policy, err := cpus.NewPolicy(machine, n.config)
	require.NoError(n.t, err)
	opts := placement.Options{
		Devices: n.devices, Policy: policy, CPUs: cpus.AllocatorOptions{Record: n.record}, Containers: n, Updater: n, IsManaged: n.isManaged,
		ResizeCPUs: n.resizes, ResizeMemory: n.resizes,
		Hooks: placement.Hooks{
			CPUsPinned:   func(p cpus.Pinning) { n.pinned = append(n.pinned, p) },
			MemoryPinned: func(p numa.Pinning) { n.memoryPinned = append(n.memoryPinned, p) },
		},
	}
	opts.Owns = func(pod *cri.Pod) bool { return pod.UID != n.foreign }
	if n.active != nil {
		opts.Active = func() ([]*corev1.Pod, bool) { return n.active, true }
	}
	if n.memory.Policy != "" {
		opts.Memory = n.files
		opts.MemoryPolicy, err = numa.NewPolicy(machine, n.memory)
		require.NoError(n.t, err)
	}
	n.placed, err = placement.New(opts)
	require.NoError(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.placed.Run(ctx) }()
	return func() {
		cancel()
		require.NoError(n.t, <-ended)
	}
}

// Pods implements placement.Containers.
func (n *node) Pods() ([]cri.Pod, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.pods)), nil
}

// isManaged reports whether a pod runs.
func (n *node) isManaged(uid string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.pods[uid]
	return ok || uid == n.listed
}

// Notify implements placement.Containers.
func (n *node) Notify(fn func(uids ...string)) { n.notify = append(n.notify, fn) }

// UpdateContainer implements cri.Updater.
func (n *node) UpdateContainer(ctx context.Context, id string, resources *cri.Resources, _ map[string]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hung {
		n.mu.Unlock()
		<-ctx.Done()
		n.mu.Lock()
		return ctx.Err()
	}
	n.cpus[id] = resources.CpusetCPUs
	if resources.CpusetMems != "" {
		n.mems[id] = resources.CpusetMems
	}
	return nil
}

// UpdateSandbox implements cri.Updater.
func (n *node) UpdateSandbox(context.Context, string, *cri.Resources, *cri.Resources) error {
	return nil
}

// run reserves the CPUs of a pod and starts its containers. It returns the CPUs of each.
func (n *node) run(pod *corev1.Pod) (started map[string]string) {
	require.NoError(n.t, n.placed.Reserve(n.t.Context(), pod))
	started = map[string]string{}
	running := cri.Pod{PodIdentity: cri.PodIdentity{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name}}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		var launch podspec.Launch
		require.NoError(n.t, n.placed.Container(n.t.Context(), pod, c, &launch))
		started[c.Name] = launch.CPUs
		id := pod.Name + "/" + c.Name
		n.mu.Lock()
		n.cpus[id], n.mems[id] = launch.CPUs, launch.MemoryNodes
		n.mu.Unlock()
		running.Containers = append(running.Containers, cri.Container{ID: id, PodUID: running.UID, Name: c.Name, State: cri.ContainerRunning})
	}
	n.mu.Lock()
	n.pods[running.UID] = running
	n.mu.Unlock()
	for _, fn := range n.notify {
		fn(running.UID)
	}
	return started
}

// remove ends a pod.
func (n *node) remove(pod *corev1.Pod) {
	n.mu.Lock()
	delete(n.pods, string(pod.UID))
	n.mu.Unlock()
	require.NoError(n.t, n.placed.Release(n.t.Context(), string(pod.UID)))
}

// written returns the CPUs of a container that runs.
func (n *node) written(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cpus[id]
}

// newPod returns a Guaranteed pod with one container for each CPU amount, or a Burstable one for the amount "".
func newPod(name string, cpu ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	for i, amount := range cpu {
		c := corev1.Container{Name: string(rune('a' + i))}
		if amount != "" {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount), corev1.ResourceMemory: resource.MustParse("64Mi")}
			c.Resources.Requests = c.Resources.Limits
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func TestSharedPoolShrinksBeforePodStartsAndGrowsAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		shared, exclusive := newPod("shared", ""), newPod("exclusive", "2", "500m")
		assert.Equal(t, map[string]string{"a": "0-3"}, n.run(shared))

		require.NoError(t, n.placed.Reserve(t.Context(), exclusive))
		assert.Equal(t, "0,3", n.written("shared/a"), "written before Reserve returns")
		assert.Equal(t, map[string]string{"a": "1-2", "b": "0,3"}, n.run(exclusive))
		assert.Equal(t, 2, n.asked, "a later start of containers is no admission")
		assert.True(t, n.placed.HasExclusiveCPUs(exclusive, "a"))
		assert.False(t, n.placed.HasExclusiveCPUs(exclusive, "b"))
		assert.True(t, n.placed.HasExclusiveCPUs(exclusive, ""))
		assert.False(t, n.placed.HasExclusiveCPUs(shared, ""))
		assert.Equal(t, []int64{1, 2}, n.placed.CPUs("exclusive", "a"))
		assert.Empty(t, n.placed.CPUs("exclusive", "b"))
		assert.Equal(t, []int64{1, 2, 3}, n.placed.AllocatableCPUs())

		n.remove(exclusive)
		synctest.Wait()
		assert.Equal(t, "0-3", n.written("shared/a"))
	})
}

func TestPodWithoutRoomIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.Reserve(t.Context(), newPod("large", "2", "2")))
		require.True(t, ok)
		assert.Equal(t, podstatus.Rejection{
			Reason:  "UnexpectedAdmissionError",
			Message: "Allocate failed due to not enough cpus available to satisfy request: requested=2, available=1, which is unexpected",

			Explanation: "container b needs 2 CPUs: node 0: 1 of 4 free (1 reserved, 2 exclusive)",
		}, *rejection)
		assert.Equal(t, map[string]string{"a": "1-3"}, n.run(newPod("next", "3")), "the rejected pod holds no CPU")
	})
}

func TestRunningPodsKeepTheirCPUsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		stop := n.start()
		shared, exclusive := newPod("shared", ""), newPod("exclusive", "2")
		n.run(shared)
		n.run(exclusive)
		stop()

		n.config.ReservedMillis = 3000 // CPUs 0 to 2
		defer n.start()()
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(exclusive))
		assert.Equal(t, map[string]string{"a": "0,3"}, n.run(shared))
		_, isRejection := errors.AsType[*podstatus.Rejection](n.placed.Reserve(t.Context(), newPod("new", "2")))
		assert.True(t, isRejection, "new pods follow the new configuration")
	})
}

func TestPodThatRunsWithoutRecordIsNotRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		n.config = cpus.Config{}
		stop := n.start()
		large := newPod("large", "4")
		assert.Equal(t, map[string]string{"a": ""}, n.run(large), "without a policy containers run on all CPUs")
		stop()

		n.config = cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000}
		defer n.start()()
		assert.Equal(t, map[string]string{"a": "0-3"}, n.run(large), "the pod runs on in the shared pool")
		assert.False(t, n.placed.HasExclusiveCPUs(large, ""))
	})
}

func TestContainerThatCannotBeUpdatedDelaysPodForTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		n.run(newPod("shared", ""))
		synctest.Wait()
		n.mu.Lock()
		n.hung = true
		n.mu.Unlock()
		begin := time.Now()
		assert.Equal(t, map[string]string{"a": "1"}, n.run(newPod("exclusive", "1")))
		assert.Equal(t, 10*time.Second, time.Since(begin))
		n.mu.Lock()
		n.hung = false
		n.mu.Unlock()
		time.Sleep(20 * time.Second)
		assert.Equal(t, "0,2-3", n.written("shared/a"))
	})
}

func TestCPUsComeFromTheNUMANodeOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "2 sockets 2 nodes 4 cores")
		n.policy = device.SingleNUMANode
		defer n.start()()
		plugin := devicetest.NewPlugin(devicetest.Options{Devices: []device.Device{{ID: "gpu", Healthy: true, Nodes: 2}}})
		feed, err := n.devices.Allocator().Connect("example.com/gpu", "", plugin)
		require.NoError(t, err)
		require.NoError(t, plugin.Attach(feed))
		pod := newPod("pod", "2")
		pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		assert.Equal(t, map[string]string{"a": "4-5"}, n.run(pod))

		wide := newPod("wide", "4")
		rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.Reserve(t.Context(), wide))
		require.True(t, ok, "no node has 4 free CPUs")
		assert.Equal(t, device.ReasonTopologyAffinityError, rejection.Reason)
	})
}

func TestOptionOfTheTopologyPolicyChoosesCloseNUMANodes(t *testing.T) {
	for value, want := range map[string]string{"false": "2-5", "true": "4-7"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, "4 sockets 4 nodes 2 cores")
			n.policy, n.near, n.options = device.Restricted, [2]int{2, 3}, map[string]string{device.PreferClosestNUMANodes: value}
			defer n.start()()
			assert.Equal(t, map[string]string{"a": want}, n.run(newPod("pod", "4")), "CPU 0 is reserved; nodes 2 and 3 are the closest two")
		})
	}
}

func TestMissingOptions(t *testing.T) {
	n := newNode(t, "1 socket 1 node 2 cores")
	devices, err := poddevice.New(poddevice.Options{})
	require.NoError(t, err)
	machine, err := topology.Parse(n.machine)
	require.NoError(t, err)
	policy, err := cpus.NewPolicy(machine, n.config)
	require.NoError(t, err)
	complete := placement.Options{Devices: devices, Policy: policy, Containers: n, Updater: n}
	for want, change := range map[string]func(*placement.Options){
		"placement: Options.Devices is nil":    func(o *placement.Options) { o.Devices = nil },
		"placement: Options.Policy is nil":     func(o *placement.Options) { o.Policy = nil },
		"placement: Options.Containers is nil": func(o *placement.Options) { o.Containers = nil },
		"placement: Options.Updater is nil: the policy static changes the CPUs of running containers": func(o *placement.Options) { o.Updater = nil },
	} {
		o := complete
		change(&o)
		_, err := placement.New(o)
		require.EqualError(t, err, want)
	}
}

// A Placement without Logger whose Run is never called discards the error about it.
func TestMissingRunWithoutLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 2 cores")
		devices, err := poddevice.New(poddevice.Options{})
		require.NoError(t, err)
		machine, err := topology.Parse(n.machine)
		require.NoError(t, err)
		policy, err := cpus.NewPolicy(machine, n.config)
		require.NoError(t, err)
		placed, err := placement.New(placement.Options{Devices: devices, Policy: policy, Containers: n, Updater: n})
		require.NoError(t, err)
		time.Sleep(runonce.Wait + time.Second)
		require.NoError(t, placed.Reserve(t.Context(), newPod("pod", "1")))
	})
}

func TestMachineThatCannotBeRead(t *testing.T) {
	n := newNode(t, "")
	devices, err := poddevice.New(poddevice.Options{})
	require.NoError(t, err)
	opts := placement.Options{Devices: devices, Containers: n, Updater: n}
	placed, err := placement.NewNode(fstest.MapFS{}, cpus.Config{Policy: cpus.PolicyNone}, placement.Files{}, opts)
	require.NoError(t, err)
	require.NoError(t, placed.Reserve(t.Context(), newPod("pod", "1")))
	pod, launch := newPod("pod", "1"), podspec.Launch{}
	require.NoError(t, placed.Container(t.Context(), pod, &pod.Spec.Containers[0], &launch))
	require.Empty(t, launch.CPUs)
	_, err = placement.NewNode(fstest.MapFS{}, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000}, placement.Files{}, opts)
	require.Error(t, err)
	_, err = placement.NewNode(fstest.MapFS{}, cpus.Config{}, placement.Files{Checkpoint: "cpu_manager_state", Export: true}, opts)
	require.EqualError(t, err, "placement: Files.Export needs Files.Checkpoint and Files.MemoryCheckpoint, the files to write")
	aligned, err := placement.ReadNodes(fstest.MapFS{}, device.Topology{})
	require.NoError(t, err)
	require.Empty(t, aligned.Nodes, "the policy none needs no nodes")
	_, err = placement.ReadNodes(fstest.MapFS{}, device.Topology{Policy: device.Restricted})
	require.Error(t, err)
}

func TestReadNodes(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"cpu/online": "0-1", "node/node0/cpu0/uevent": "", "node/node2/cpu1/uevent": "", "node/node0/distance": "10 21", "node/node2/distance": "21 10",
		"cpu/cpu0/topology/core_id": "0", "cpu/cpu0/topology/physical_package_id": "0", "cpu/cpu1/topology/core_id": "1", "cpu/cpu1/topology/physical_package_id": "0",
	} {
		files["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	aligned, err := placement.ReadNodes(files, device.Topology{Policy: device.BestEffort, PodScope: true})
	require.NoError(t, err)
	nodes := []device.NUMANode{{ID: 0, Distances: []int{10, 21}}, {ID: 2, Distances: []int{21, 10}}}
	require.Equal(t, device.Topology{Policy: device.BestEffort, PodScope: true, Nodes: nodes}, aligned)
}
