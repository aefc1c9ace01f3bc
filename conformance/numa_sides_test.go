// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/admission"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// ourMemory is our side.
type ourMemory struct {
	in     *numaInput
	policy *numa.Policy
	state  numa.State
	mixed  bool // a node served two sets of nodes
}

func newOurMemory(in *numaInput) *ourMemory {
	policy, err := numa.NewPolicy(&in.Machine, in.config())
	if err != nil {
		panic(err) // no input has a wrong configuration
	}
	return &ourMemory{in: in, policy: policy}
}

func (o *ourMemory) hints(pod *numa.Pod, i int) [][]device.Hint {
	return o.policy.Hints(o.state, pod, i)
}

func (o *ourMemory) podHints(pod *numa.Pod) [][]device.Hint { return o.policy.PodHints(o.state, pod) }

func (o *ourMemory) reserve(pod *numa.Pod, i int, affinity device.Hint) (err error) {
	o.state, err = o.policy.Reserve(o.state, pod, i, affinity)
	o.mixed = o.mixed || isMixed(o.blocks())
	return err
}

func (o *ourMemory) reservePod(pod *numa.Pod, affinity device.Hint) (err error) {
	o.state, err = o.policy.ReservePod(o.state, pod, affinity)
	o.mixed = o.mixed || isMixed(o.blocks())
	if refusal, ok := errors.AsType[*numa.Refusal](err); ok {
		return errors.New(refusal.Reason + ": " + hideType(refusal.Message))
	}
	return err
}

// hideType returns the text of a refusal without the type of memory: of several, the kubelet names any.
func hideType(text string) string {
	for _, name := range []string{"memory", "hugepages-2Mi", "hugepages-64Ki", "hugepages-1Gi"} {
		text = strings.Replace(text, "no "+name+" available", "no RES available", 1)
		text = strings.Replace(text, "container "+name+" requests", "container RES requests", 1)
	}
	return text
}

func (o *ourMemory) start(pod *numa.Pod, i int) { o.state = o.policy.Start(o.state, pod, i) }

func (o *ourMemory) remove(pod *numa.Pod, containers []numa.Container) {
	for _, c := range containers {
		o.state = o.policy.ReleaseContainer(o.state, pod.UID, c.Name)
	}
}

func (o *ourMemory) restart(changed int) error {
	policy, err := numa.NewPolicy(o.in.machine(changed), o.in.config())
	if err != nil {
		panic(err)
	}
	restored, err := policy.Restore(o.policy.Save(o.state))
	o.policy, o.state = policy, restored.State
	return err
}

func (o *ourMemory) nodes() []numa.Node { return o.policy.Nodes(o.state) }

func (o *ourMemory) blocks() map[string]map[string][]numa.Block {
	all := map[string]map[string][]numa.Block{}
	maps.Copy(all, o.policy.Save(o.state).Pods)
	return all
}

// isMixed reports whether two blocks are on sets of nodes that overlap and differ.
func isMixed(pods map[string]map[string][]numa.Block) bool {
	var sets []device.Mask
	for _, containers := range pods {
		for _, blocks := range containers {
			for _, b := range blocks {
				sets = append(sets, b.Nodes)
			}
		}
	}
	return slices.ContainsFunc(sets, func(a device.Mask) bool {
		return slices.ContainsFunc(sets, func(b device.Mask) bool { return a != b && a&b != 0 })
	})
}

// kubeletMemory is the kubelet's static policy with its state in memory.
type kubeletMemory struct {
	in       *numaInput
	policy   memorymanager.Policy
	state    state.State
	affinity topologymanager.TopologyHint
}

func newKubeletMemory(in *numaInput) *kubeletMemory {
	k := &kubeletMemory{in: in, state: state.NewMemoryState(klog.Logger{})}
	if err := k.startPolicy(&in.Machine); err != nil {
		panic(err)
	}
	return k
}

func (k *kubeletMemory) startPolicy(machine *topology.Machine) (err error) {
	reserved := map[int]map[corev1.ResourceName]uint64{}
	for i, sizes := range k.in.Reserved {
		reserved[machine.Nodes[i].ID] = map[corev1.ResourceName]uint64{}
		for name, size := range sizes {
			reserved[machine.Nodes[i].ID][corev1.ResourceName(name)] = size * numaMiB
		}
	}
	if k.policy, err = memorymanager.NewPolicyStatic(klog.Logger{}, kubeletMachine(machine), reserved, k); err != nil {
		return err
	}
	return k.policy.Start(klog.Logger{}, k.state)
}

// kubeletMachine converts the NUMA nodes of a machine to the kubelet's type.
func kubeletMachine(machine *topology.Machine) *cadvisorapi.MachineInfo {
	info := &cadvisorapi.MachineInfo{}
	for _, n := range machine.Nodes {
		out := cadvisorapi.Node{Id: n.ID, Memory: n.Memory}
		for _, h := range n.HugePages {
			out.HugePages = append(out.HugePages, cadvisorapi.HugePagesInfo{PageSize: h.Size / 1024, NumPages: h.Count})
		}
		for _, d := range n.Distances {
			out.Distances = append(out.Distances, uint64(d))
		}
		info.Topology = append(info.Topology, out)
	}
	return info
}

// The methods of topologymanager.Store.
func (k *kubeletMemory) GetAffinity(klog.Logger, string, string) topologymanager.TopologyHint {
	return k.affinity
}
func (k *kubeletMemory) GetPolicy() topologymanager.Policy { return nil }
func (k *kubeletMemory) Name() string                      { return "" }

// kubeletMemoryPod converts a pod. Its QoS class is in its status.
func kubeletMemoryPod(pod *numa.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(pod.UID), Namespace: pod.Namespace, Name: pod.Name}}
	out.Status.QOSClass = corev1.PodQOSBurstable
	if pod.Guaranteed {
		out.Status.QOSClass = corev1.PodQOSGuaranteed
	}
	if pod.PodLevel {
		out.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{}}
		for name, size := range pod.Requests {
			out.Spec.Resources.Requests[corev1.ResourceName(name)] = *resource.NewQuantity(int64(size), resource.BinarySI)
		}
		if len(pod.Requests) == 0 {
			out.Spec.Resources.Requests[corev1.ResourceMemory] = resource.MustParse("1Gi")
		}
	}
	for _, c := range pod.Containers {
		container := corev1.Container{Name: c.Name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}
		for name, size := range c.Requests {
			container.Resources.Requests[corev1.ResourceName(name)] = *resource.NewQuantity(int64(size), resource.BinarySI)
		}
		if c.Guaranteed {
			container.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
			container.Resources.Limits = container.Resources.Requests
		}
		switch c.Kind {
		case device.Regular:
			out.Spec.Containers = append(out.Spec.Containers, container)
			continue
		case device.Sidecar:
			always := corev1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
		}
		out.Spec.InitContainers = append(out.Spec.InitContainers, container)
	}
	return out
}

// containerOf returns container i in the order in which the containers start.
func containerOf(pod *corev1.Pod, i int) *corev1.Container {
	if i < len(pod.Spec.InitContainers) {
		return &pod.Spec.InitContainers[i]
	}
	return &pod.Spec.Containers[i-len(pod.Spec.InitContainers)]
}

func (k *kubeletMemory) hints(pod *numa.Pod, i int) [][]device.Hint {
	p := kubeletMemoryPod(pod)
	return ourHintLists(k.policy.GetTopologyHints(klog.Logger{}, k.state, p, containerOf(p, i), lifecycle.AddOperation))
}

func (k *kubeletMemory) podHints(pod *numa.Pod) [][]device.Hint {
	return ourHintLists(k.policy.GetPodTopologyHints(klog.Logger{}, k.state, kubeletMemoryPod(pod), lifecycle.AddOperation))
}

// ourHintLists converts the hints of a provider, sorted by resource. Nil is no preference.
func ourHintLists(byResource map[string][]topologymanager.TopologyHint) (lists [][]device.Hint) {
	for _, name := range slices.Sorted(maps.Keys(byResource)) {
		list := []device.Hint{}
		for _, h := range byResource[name] {
			list = append(list, ourHint(h))
		}
		lists = append(lists, list)
	}
	return lists
}

func (k *kubeletMemory) reserve(pod *numa.Pod, i int, affinity device.Hint) error {
	k.affinity = kubeletHint(affinity)
	p := kubeletMemoryPod(pod)
	return k.policy.Allocate(context.Background(), k.state, p, containerOf(p, i), lifecycle.AddOperation)
}

func (k *kubeletMemory) reservePod(pod *numa.Pod, affinity device.Hint) error {
	k.affinity = kubeletHint(affinity)
	err := k.policy.AllocatePod(klog.Logger{}, k.state, kubeletMemoryPod(pod), lifecycle.AddOperation)
	var shares *admission.EmptyPodSharedPoolError
	switch {
	case errors.As(err, &shares):
		return errors.New(shares.Type() + ": " + hideType(shares.Error()))
	case err != nil:
		return errors.New(admission.ErrorReasonUnexpected + ": " + hideType(err.Error()))
	}
	return nil
}

// start frees the init containers before container i, as AddContainer of the memory manager does.
func (k *kubeletMemory) start(pod *numa.Pod, i int) {
	for _, c := range pod.Containers[:i] {
		if c.Kind == device.Init {
			k.policy.RemoveContainer(klog.Logger{}, k.state, pod.UID, c.Name)
		}
	}
}

func (k *kubeletMemory) remove(pod *numa.Pod, containers []numa.Container) {
	for _, c := range containers {
		k.policy.RemoveContainer(klog.Logger{}, k.state, pod.UID, c.Name)
	}
}

func (k *kubeletMemory) restart(changed int) error {
	previous := k.state
	k.state = state.NewMemoryState(klog.Logger{})
	k.state.SetMachineState(previous.GetMachineState())
	k.state.SetMemoryAssignments(previous.GetMemoryAssignments())
	if k.in.PodLevel {
		k.state.SetPodMemoryAssignments(previous.GetPodMemoryAssignments())
	}
	return k.startPolicy(k.in.machine(changed))
}

func (k *kubeletMemory) nodes() []numa.Node { return ourNodes(k.state.GetMachineState()) }

// ourNodes converts the machine state of the kubelet.
func ourNodes(machine state.NUMANodeMap) (nodes []numa.Node) {
	for id, n := range machine {
		group, err := device.NewMask(n.Cells...)
		if err != nil {
			panic(err)
		}
		out := numa.Node{ID: id, Assignments: n.NumberOfAssignments, Group: group, Memory: map[string]numa.Amounts{}}
		for name, t := range n.MemoryMap {
			out.Memory[string(name)] = numa.Amounts{Total: t.TotalMemSize, SystemReserved: t.SystemReserved, Allocatable: t.Allocatable, Reserved: t.Reserved, Free: t.Free}
		}
		nodes = append(nodes, out)
	}
	slices.SortFunc(nodes, func(a, b numa.Node) int { return cmp.Compare(a.ID, b.ID) })
	return nodes
}

func (k *kubeletMemory) blocks() map[string]map[string][]numa.Block {
	all := ourBlocks(k.state.GetMemoryAssignments())
	for uid, entry := range k.state.GetPodMemoryAssignments() {
		whole := ourBlocks(state.ContainerMemoryAssignments{uid: {numa.WholePod: entry.MemoryBlocks}})
		if all[uid] == nil {
			all[uid] = map[string][]numa.Block{}
		}
		all[uid][numa.WholePod] = whole[uid][numa.WholePod]
	}
	return all
}

// ourBlocks converts the blocks of the kubelet, sorted by type.
func ourBlocks(assignments state.ContainerMemoryAssignments) map[string]map[string][]numa.Block {
	all := map[string]map[string][]numa.Block{}
	for uid, containers := range assignments {
		all[uid] = map[string][]numa.Block{}
		for name, blocks := range containers {
			list := []numa.Block{}
			for _, b := range blocks {
				mask, err := device.NewMask(b.NUMAAffinity...)
				if err != nil {
					panic(err)
				}
				list = append(list, numa.Block{Type: string(b.Type), Nodes: mask, Size: b.Size})
			}
			slices.SortFunc(list, func(a, b numa.Block) int { return cmp.Compare(a.Type, b.Type) })
			all[uid][name] = list
		}
	}
	return all
}
