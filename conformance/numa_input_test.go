// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// numaMiB is the unit of all sizes of the comparison.
const numaMiB = 1 << 20

// The operations of a numaOp.
const (
	numaAdmit   = iota // the pod is admitted, unless it was before
	numaStart          // a container of the pod starts
	numaRemove         // the pod is over
	numaShrink         // a container leaves the spec of the pod
	numaRestart        // the kubelet restarts, and admits all pods again
	numaCrash          // the pod is admitted, and the kubelet restarts before its last container
)

// numaInput is a machine, and what happens on it.
type numaInput struct {
	Machine  topology.Machine
	Reserved []map[string]uint64 // MiB by node and type
	PodScope bool
	PodLevel bool // the gate PodLevelResourceManagers is on
	Kubelet  numa.Kubelet
	Pods     []numa.Pod
	Ops      []numaOp
}

// numaOp is an operation on a pod.
type numaOp struct {
	Op, Pod, Container int
	Affinities         []numaAffinity // of the containers, in turn
	Changed            int            // of a restart: the node whose memory has changed by a MiB, counted from one; zero: none
}

// numaAffinity says how the topology policy chooses the nodes of a container.
type numaAffinity struct {
	Policy device.Policy
	Fixed  bool        // Extra is the merged hint
	Extra  device.Hint // of another resource; without nodes: there is none
}

func makeNUMAInput(c *conformance.Choices) numaInput {
	in := numaInput{PodScope: c.OneIn(4), Kubelet: numa.Kubelet{FreeInit: !c.OneIn(8), RefuseChanged: !c.OneIn(8)}}
	pages := []topology.HugePages{{Size: 2 * numaMiB}}
	if c.OneIn(4) {
		pages = append(pages, topology.HugePages{Size: numaMiB / 16})
	}
	id, gaps, equal := 0, c.OneIn(6), c.OneIn(2)
	memory := uint64(c.Int(24)) + 8
	for range 1 + c.Int(5) {
		n := topology.Node{ID: id, Memory: memory * numaMiB}
		for _, h := range pages {
			h.Count = uint64(c.Int(4))
			n.HugePages = append(n.HugePages, h)
		}
		if c.OneIn(48) {
			n.HugePages = n.HugePages[:len(n.HugePages)-1]
		}
		reserved := map[string]uint64{}
		if len(in.Reserved) == 0 || c.OneIn(3) {
			reserved[numa.Memory] = 1 + uint64(c.Int(3))
		}
		if c.OneIn(32) {
			reserved[numa.Memory] = memory + 1
		}
		in.Machine.Nodes, in.Reserved = append(in.Machine.Nodes, n), append(in.Reserved, reserved)
		if id++; gaps && c.OneIn(2) {
			id += 1 + c.Int(3)
		}
		if !equal {
			memory = uint64(c.Int(24)) + 8
		}
	}
	for i := range 1 + c.Int(6) {
		in.Pods = append(in.Pods, makeNUMAPod(c, i))
	}
	for range 1 + c.Int(14) {
		op := numaOp{Op: numaAdmit, Pod: c.Int(len(in.Pods)), Container: c.Int(4)}
		if c.OneIn(2) {
			op.Op = numaStart + c.Int(4)
		}
		if op.Op == numaRestart && c.OneIn(6) {
			op.Changed = 1 + c.Int(len(in.Machine.Nodes))
		}
		if c.OneIn(64) {
			op.Op = numaCrash
		}
		for range 1 + c.Int(3) {
			op.Affinities = append(op.Affinities, in.makeAffinity(c))
		}
		in.Ops = append(in.Ops, op)
	}
	return in
}

// makePodLevelNUMAInput returns a sequence with the gate PodLevelResourceManagers, most under the topology scope "pod".
func makePodLevelNUMAInput(c *conformance.Choices) numaInput {
	in := makeNUMAInput(c)
	in.PodLevel, in.PodScope = true, in.PodScope || !c.OneIn(4)
	for i := range in.Pods {
		if pod := &in.Pods[i]; !c.OneIn(3) || pod.PodLevel {
			setPodLevelMemory(c, pod)
		}
	}
	return in
}

// setPodLevelMemory sets the requests of a pod, which are not below those of its containers, as an API server requires.
func setPodLevelMemory(c *conformance.Choices, pod *numa.Pod) {
	pod.PodLevel, pod.Requests = true, map[string]uint64{}
	kept := map[string]uint64{}
	for i := range pod.Containers {
		container := &pod.Containers[i]
		container.Guaranteed = container.Requests[numa.Memory] > 0 && !c.OneIn(4)
		for _, name := range slices.Sorted(maps.Keys(container.Requests)) {
			size := container.Requests[name]
			pod.Requests[name] = max(pod.Requests[name], kept[name]+size)
			if container.Kind != device.Init {
				kept[name] += size
			}
		}
	}
	pod.Requests[numa.Memory] += uint64(c.Int(4)) * numaMiB
	if pod.Requests[numa.Memory] == 0 { // of a Guaranteed pod it is not
		pod.Requests[numa.Memory] = numaMiB
	}
	if c.OneIn(2) {
		delete(pod.Requests, "hugepages-64Ki") // rare: another type for the pool
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		if _, ok := pod.Requests[name]; !ok {
			for i := range pod.Containers {
				delete(pod.Containers[i].Requests, name)
			}
		}
	}
}

func (in *numaInput) makeAffinity(c *conformance.Choices) (a numaAffinity) {
	a.Policy = device.Policy(c.Int(4))
	if c.OneIn(3) {
		a.Extra.Preferred = !c.OneIn(3)
		for _, n := range in.Machine.Nodes {
			if c.OneIn(2) {
				a.Extra.Nodes |= 1 << n.ID
			}
		}
	}
	a.Fixed = c.OneIn(6)
	return a
}

func makeNUMAPod(c *conformance.Choices, i int) numa.Pod {
	pod := numa.Pod{UID: fmt.Sprint("u", i), Namespace: "default", Name: fmt.Sprint("p", i), Guaranteed: !c.OneIn(24), PodLevel: c.OneIn(24)}
	for kinds, count := range []int{c.Int(4), 1 + c.Int(3)} { // init containers and sidecars, then regular containers
		for range count {
			container := numa.Container{Name: fmt.Sprint("c", len(pod.Containers)), Requests: map[string]uint64{}}
			if kinds == 0 {
				container.Kind = device.Init + device.ContainerKind(c.Int(2)) // or a sidecar
			}
			if !c.OneIn(12) {
				container.Requests[numa.Memory] = uint64(c.Int(20)) * numaMiB
				if c.OneIn(12) {
					container.Requests[numa.Memory] += 1 + uint64(c.Int(40))*numaMiB
				}
			}
			if c.OneIn(4) && (len(container.Requests) > 0 || c.OneIn(16)) {
				container.Requests["hugepages-2Mi"] = 2 * uint64(c.Int(5)) * numaMiB
			}
			if c.OneIn(64) && len(container.Requests) > 0 {
				container.Requests["hugepages-64Ki"] = uint64(c.Int(3)) * numaMiB / 16
			}
			if c.OneIn(200) {
				container.Requests["hugepages-1Gi"] = 1 << 30
			}
			pod.Containers = append(pod.Containers, container)
		}
	}
	return pod
}

// machine returns the machine after a change of a node, counted from one.
func (in *numaInput) machine(changed int) *topology.Machine {
	m := &topology.Machine{Nodes: append([]topology.Node(nil), in.Machine.Nodes...)}
	if changed > 0 {
		m.Nodes[changed-1].Memory -= numaMiB
	}
	return m
}

// config returns the configuration for ours.
func (in *numaInput) config() numa.Config {
	config := numa.Config{Policy: numa.PolicyStatic, PodLevel: in.PodLevel, Kubelet: in.Kubelet, SystemReserved: map[string]resource.Quantity{}}
	for i, reserved := range in.Reserved {
		limits := map[string]resource.Quantity{}
		for name, size := range reserved {
			limits[name] = *resource.NewQuantity(int64(size)*numaMiB, resource.BinarySI)
			total := config.SystemReserved[name]
			total.Add(limits[name])
			config.SystemReserved[name] = total
		}
		config.ReservedMemory = append(config.ReservedMemory, numa.Reservation{Node: in.Machine.Nodes[i].ID, Limits: limits})
	}
	return config
}

// mask returns the nodes of the machine.
func (in *numaInput) mask() (m device.Mask) {
	for _, n := range in.Machine.Nodes {
		m |= 1 << n.ID
	}
	return m
}

// choose returns the merged hint for a container with these hints, and whether the policy admits it.
func (in *numaInput) choose(a numaAffinity, hints [][]device.Hint) (device.Hint, bool) {
	if a.Fixed {
		return a.Extra, true
	}
	if a.Extra.Nodes != 0 {
		hints = append([][]device.Hint{{a.Extra}}, hints...)
	}
	return a.Policy.Merge(hints, in.mask())
}

// numaSide is the kubelet or ours.
type numaSide interface {
	hints(pod *numa.Pod, i int) [][]device.Hint
	podHints(pod *numa.Pod) [][]device.Hint
	reserve(pod *numa.Pod, i int, affinity device.Hint) error
	reservePod(pod *numa.Pod, affinity device.Hint) error
	start(pod *numa.Pod, i int)
	remove(pod *numa.Pod, containers []numa.Container)
	restart(changed int) error
	nodes() []numa.Node
	blocks() map[string]map[string][]numa.Block
}

// numaStep is the result of an operation.
type numaStep struct {
	Text   []string // hints and errors
	Nodes  []numa.Node
	Blocks map[string]map[string][]numa.Block
}

// play executes the operations of in on a side.
func (in *numaInput) play(side numaSide) (steps []numaStep) {
	pods := make([]numa.Pod, len(in.Pods))
	active := make([]bool, len(in.Pods))
	copy(pods, in.Pods)
	for n, op := range in.Ops {
		step, pod := numaStep{}, &pods[op.Pod]
		admitted := in.Pods[op.Pod]
		admitted.UID = fmt.Sprint(admitted.UID, "-", n) // a removed pod is never admitted again
		switch op.Op {
		case numaAdmit:
			if !active[op.Pod] {
				*pod = admitted
				active[op.Pod] = in.admit(side, pod, op, &step, len(pod.Containers))
			}
		case numaStart:
			if active[op.Pod] {
				side.start(pod, op.Container%len(pod.Containers))
			}
		case numaRemove:
			side.remove(pod, pod.Containers)
			active[op.Pod] = false
		case numaShrink:
			if at := op.Container % len(pod.Containers); len(pod.Containers) > 1 {
				side.remove(pod, pod.Containers[at:at+1])
				pod.Containers = append(append([]numa.Container(nil), pod.Containers[:at]...), pod.Containers[at+1:]...)
			}
		default:
			if op.Op == numaCrash && !active[op.Pod] && !in.isWhole(&admitted) {
				*pod = admitted
				active[op.Pod] = in.admit(side, pod, op, &step, len(pod.Containers)-1)
			}
			if err := side.restart(op.Changed); err != nil {
				step.Text = append(step.Text, err.Error())
				return append(steps, step)
			}
			for i := range pods {
				if active[i] && !in.isWhole(&pods[i]) { // the kubelet would allocate a second time
					active[i] = in.admit(side, &pods[i], op, &step, len(pods[i].Containers))
				}
			}
		}
		step.Nodes, step.Blocks = side.nodes(), side.blocks()
		steps = append(steps, step)
	}
	return steps
}

// isWhole reports whether the memory of a pod is reserved as a whole.
func (in *numaInput) isWhole(pod *numa.Pod) bool { return in.PodLevel && in.PodScope && pod.PodLevel }

// admit admits the first containers of a pod. A pod that is refused loses its memory.
func (in *numaInput) admit(side numaSide, pod *numa.Pod, op numaOp, step *numaStep, containers int) bool {
	var hints [][]device.Hint
	if in.PodScope {
		hints = side.podHints(pod)
		step.Text = append(step.Text, fmt.Sprint(pod.UID, " ", hints))
	}
	if in.isWhole(pod) {
		affinity, admitted := in.choose(op.Affinities[0], hints)
		var err error
		if admitted {
			err = side.reservePod(pod, affinity)
		}
		if err != nil || !admitted {
			step.Text = append(step.Text, fmt.Sprint("refused: ", err))
			side.remove(pod, pod.Containers)
			return false
		}
		return true
	}
	for i := range containers {
		a := op.Affinities[i%len(op.Affinities)]
		if in.PodScope {
			a = op.Affinities[0]
		} else {
			hints = side.hints(pod, i)
			step.Text = append(step.Text, fmt.Sprint(pod.UID, " ", i, " ", hints))
		}
		affinity, admitted := in.choose(a, hints)
		if !admitted {
			step.Text = append(step.Text, "TopologyAffinityError")
			side.remove(pod, pod.Containers)
			return false
		}
		if err := side.reserve(pod, i, affinity); err != nil {
			step.Text = append(step.Text, err.Error())
			side.remove(pod, pod.Containers)
			return false
		}
	}
	return true
}
