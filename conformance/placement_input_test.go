// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/qos"
)

// placementInput is a node with devices, exclusive CPUs and memory on NUMA nodes, and what happens on it.
type placementInput struct {
	Machine  topology.Machine
	Topology device.Topology
	CPUs     cpus.Config
	Memory   numa.Config
	Devices  [][]device.Device // of each of deviceResources, at the start
	Steps    []placementStep
}

// placementStep is an operation: one of its fields is set.
type placementStep struct {
	Admit   *placementPod
	Remove  int // 1: the first of the admitted pods
	List    *placementList
	Fail    *placementFailure
	Restart *placementRestart
}

// placementPod is the admission of a pod, after which its first containers start.
type placementPod struct {
	Pod     *corev1.Pod
	Started int // number of containers
}

// placementList is a list of the devices of a resource.
type placementList struct {
	Resource int
	Devices  []device.Device
}

// placementFailure begins or ends a failure of a plugin: its Allocate returns an error.
type placementFailure struct {
	Resource int
	Failing  bool
}

// placementRestart is a restart of the agent, perhaps with another configuration. The pods are admitted again.
type placementRestart struct {
	Late     bool              // the plugins connect after the pods are admitted again
	Topology *device.Topology  // nil: the same
	Options  map[string]string // of the CPU manager; nil: the same
}

func makePlacementInput(c *conformance.Choices) placementInput { return makePlacement(c, false) }

// makePodLevelPlacementInput returns an input with the gate PodLevelResourceManagers.
func makePodLevelPlacementInput(c *conformance.Choices) placementInput {
	return makePlacement(c, true)
}

func makePlacement(c *conformance.Choices, podLevel bool) placementInput {
	var in placementInput
	in.CPUs = cpus.Config{Gates: cpus.Gates{AlphaOptions: true, PodLevel: podLevel}, Kubelet: cpus.Kubelet{EmptyPool: true, RefuseChanged: true, RefuseRunning: true}}
	in.Machine = makePlacementMachine(c)
	in.makeTopology(c)
	in.Topology.PodLevel = podLevel
	if in.CPUs.Policy = conformance.Pick(c, cpus.PolicyStatic, cpus.PolicyStatic, cpus.PolicyStatic, cpus.PolicyNone); in.CPUs.Policy == cpus.PolicyStatic {
		in.CPUs.Options = makeCPUOptions(c)
		if in.CPUs.Options["align-by-socket"] != "" && in.Topology.Policy == device.SingleNUMANode {
			in.Topology.Policy = device.Restricted
		}
		reserveCPUs(c, &in.Machine, &in.CPUs)
	}
	in.CPUs.Topology = in.Topology.Policy
	in.Memory = numa.Config{Policy: conformance.Pick(c, numa.PolicyStatic, numa.PolicyStatic, numa.PolicyStatic, numa.PolicyNone), PodLevel: podLevel, Kubelet: numa.Kubelet{FreeInit: true, RefuseChanged: true}}
	in.reserveMemory(c)
	for range c.Int(3) {
		in.Devices = append(in.Devices, in.makeDevices(c))
	}
	for i := range 1 + c.Int(12) {
		in.Steps = append(in.Steps, in.makeStep(c, i))
	}
	return in
}

// makePlacementMachine returns a machine with one to four NUMA nodes. Huge pages and reserved memory never have more than a node; see numaMemory.
func makePlacementMachine(c *conformance.Choices) topology.Machine {
	nodes := 1 + c.Int(4)
	sockets := conformance.Pick(c, nodes, nodes, 1, nodes/2, 2*nodes)
	if sockets == 0 || nodes%sockets != 0 && sockets%nodes != 0 {
		sockets = nodes
	}
	caches := max(1, nodes/sockets) * (1 + c.Int(2))
	cores := caches * (1 + c.Int(3)) // of a socket
	if c.OneIn(3) {
		caches = 1 // not known
	}
	machine, err := topology.Parse(fmt.Sprintf("%d sockets %d nodes %d cores %d threads %d caches", sockets, nodes, cores, 1+c.Int(2), caches))
	if err != nil {
		panic(err)
	}
	memory, equal := uint64(c.Int(24))+8, c.OneIn(2)
	pages := c.OneIn(3)
	for i := range machine.Nodes {
		n := &machine.Nodes[i]
		n.Memory = memory * numaMiB
		if pages {
			n.HugePages = []topology.HugePages{{Size: 2 * numaMiB, Count: uint64(c.Int(3))}}
		}
		if !equal {
			memory = uint64(c.Int(24)) + 8
		}
	}
	if c.OneIn(2) {
		setDistances(c, machine)
	}
	return *machine
}

// setDistances sets random distances between NUMA nodes.
func setDistances(c *conformance.Choices, machine *topology.Machine) {
	for i := range machine.Nodes {
		machine.Nodes[i].Distances = make([]int, len(machine.Nodes))
		machine.Nodes[i].Distances[i] = 10
	}
	for i := range machine.Nodes {
		for j := range i {
			distance := conformance.Pick(c, 20, 12, 32)
			machine.Nodes[i].Distances[j], machine.Nodes[j].Distances[i] = distance, distance
		}
	}
}

func (in *placementInput) makeTopology(c *conformance.Choices) {
	in.Topology = device.Topology{Policy: device.Policy(c.Int(4)), PodScope: c.OneIn(2), Options: map[string]string{}}
	for _, n := range in.Machine.Nodes {
		in.Topology.Nodes = append(in.Topology.Nodes, device.NUMANode{ID: n.ID, Distances: n.Distances})
	}
	if in.Topology.Policy == device.None {
		return // no options
	}
	if c.OneIn(2) {
		in.Topology.Options[device.PreferClosestNUMANodes] = strconv.FormatBool(!c.OneIn(8))
	}
	if c.OneIn(8) {
		in.Topology.Options[device.MaxAllowableNUMANodes] = "12"
	}
}

// reserveMemory reserves memory of the first NUMA node, and perhaps of others.
func (in *placementInput) reserveMemory(c *conformance.Choices) {
	total := resource.NewQuantity(0, resource.BinarySI)
	for i, n := range in.Machine.Nodes {
		if i > 0 && !c.OneIn(3) {
			continue
		}
		q := *resource.NewQuantity(int64(1+c.Int(3))*numaMiB, resource.BinarySI)
		total.Add(q)
		in.Memory.ReservedMemory = append(in.Memory.ReservedMemory, numa.Reservation{Node: n.ID, Limits: map[string]resource.Quantity{numa.Memory: q}})
	}
	in.Memory.SystemReserved = map[string]resource.Quantity{numa.Memory: *total}
}

// makeDevices returns a list of devices, most of which have one NUMA node.
func (in *placementInput) makeDevices(c *conformance.Choices) (list []device.Device) {
	for i := range c.Int(9) {
		d := device.Device{ID: fmt.Sprint("d", i), Healthy: !c.OneIn(8)}
		if !c.OneIn(8) {
			d.Nodes = 1 << c.Int(len(in.Machine.Nodes))
			if c.OneIn(8) {
				d.Nodes |= 1 << c.Int(len(in.Machine.Nodes))
			}
		}
		list = append(list, d)
	}
	return list
}

func (in *placementInput) makeStep(c *conformance.Choices, number int) placementStep {
	switch kind := c.Int(16); {
	case kind < 10:
		return placementStep{Admit: in.makePod(c, number)}
	case kind < 12:
		return placementStep{Remove: 1 + c.Int(4)}
	case kind < 14 && len(in.Devices) > 0:
		at := c.Int(len(in.Devices))
		if c.OneIn(4) {
			return placementStep{Fail: &placementFailure{Resource: at, Failing: !c.OneIn(3)}}
		}
		list := append([]device.Device(nil), in.Devices[at]...)
		for i := range list {
			if c.OneIn(4) {
				list[i].Healthy = !list[i].Healthy
			}
		}
		return placementStep{List: &placementList{Resource: at, Devices: list}}
	case kind >= 14 && !(in.Topology.PodLevel && in.Topology.PodScope): // the kubelet would allocate a second time
		return placementStep{Restart: in.makeRestart(c)}
	}
	return placementStep{Remove: 1}
}

// makeRestart returns a restart, a third of them with another configuration of the topology manager or other options of the CPU manager.
func (in *placementInput) makeRestart(c *conformance.Choices) *placementRestart {
	restart := &placementRestart{Late: c.OneIn(4)}
	_, isAligned := in.CPUs.Options["align-by-socket"]
	if c.OneIn(4) && !isAligned {
		changed := placementInput{Machine: in.Machine}
		changed.makeTopology(c)
		changed.Topology.PodLevel, changed.Topology.PodScope = in.Topology.PodLevel, changed.Topology.PodScope && !in.Topology.PodLevel
		restart.Topology = &changed.Topology
	}
	if c.OneIn(4) && in.CPUs.Policy == cpus.PolicyStatic && !isSpreadInCores(in.CPUs.Options) {
		options := makeCPUOptions(c)
		if options["distribute-cpus-across-numa"] == "" && options["align-by-socket"] == "" {
			restart.Options = options
		}
	}
	return restart
}

// makePod returns a pod. A container that uses a resource of which init containers have left devices uses at least these: of more, the kubelet
// reuses any. A container has devices of one resource: the order of several is random in the kubelet.
func (in *placementInput) makePod(c *conformance.Choices, number int) *placementPod {
	uid := fmt.Sprint("pod", number)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: uid, Namespace: "default"}}
	guaranteed := !c.OneIn(6)
	inits, left := c.Int(3), make([]int, len(in.Devices))
	for i := range inits + 1 + c.Int(3) {
		container := corev1.Container{Name: fmt.Sprint("c", i), Resources: in.makeResources(c, guaranteed)}
		reusable := false
		if i < inits && c.OneIn(2) {
			always := corev1.ContainerRestartPolicyAlways
			container.RestartPolicy = &always
		} else {
			reusable = i < inits
		}
		if len(in.Devices) > 0 && c.OneIn(2) {
			at := c.Int(len(in.Devices))
			count := max(1+c.Int(3), left[at])
			left[at] = 0
			if reusable {
				left[at] = count
			}
			setResource(&container, corev1.ResourceName(deviceResources[at]), resource.NewQuantity(int64(count), resource.DecimalSI), true)
		}
		if i < inits {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		} else {
			pod.Spec.Containers = append(pod.Spec.Containers, container)
		}
	}
	switch {
	case in.Topology.PodLevel && c.OneIn(2):
		in.setPodLevel(c, pod, guaranteed)
	case !in.Topology.PodLevel && c.OneIn(16):
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("1Gi")}}
		if guaranteed {
			pod.Spec.Resources.Limits = pod.Spec.Resources.Requests.DeepCopy()
		}
	}
	p := &placementPod{Pod: pod, Started: len(pod.Spec.InitContainers) + len(pod.Spec.Containers)}
	if c.OneIn(4) {
		p.Started = c.Int(p.Started + 1)
	}
	return p
}

// setPodLevel sets the pod-level resources of a pod, which are not below those of its containers. Some containers have a limit above their request. Under the
// topology scope "pod", the pod has no devices: the kubelet allocates them when its containers start.
func (in *placementInput) setPodLevel(c *conformance.Choices, pod *corev1.Pod, guaranteed bool) {
	for _, container := range containersOf(pod) {
		if container.Resources.Requests == nil {
			container.Resources.Requests = corev1.ResourceList{}
		}
		for _, name := range deviceResources {
			if in.Topology.PodScope && in.Topology.Policy != device.None {
				delete(container.Resources.Requests, corev1.ResourceName(name))
				delete(container.Resources.Limits, corev1.ResourceName(name))
			}
		}
		if c.OneIn(3) && container.Resources.Limits != nil {
			delete(container.Resources.Limits, conformance.Pick(c, corev1.ResourceCPU, corev1.ResourceMemory))
		}
	}
	total := qos.Requests(pod, qos.Options{})
	requests := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, "hugepages-2Mi"} {
		q := total[name]
		if name == corev1.ResourceCPU && !c.OneIn(4) {
			q = *resource.NewQuantity(q.Value()+int64(c.Int(3)), resource.DecimalSI)
		}
		if name == corev1.ResourceMemory {
			q.Add(*resource.NewQuantity(int64(1+c.Int(3))*numaMiB, resource.BinarySI))
		}
		if !q.IsZero() {
			requests[name] = q
		}
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
	if guaranteed {
		pod.Spec.Resources.Limits = requests.DeepCopy()
	}
}

// makeResources returns the resources of a container of a Guaranteed pod, or of another pod.
func (in *placementInput) makeResources(c *conformance.Choices, guaranteed bool) corev1.ResourceRequirements {
	container := corev1.Container{}
	millis := int64(1+c.Int(min(6, len(in.Machine.CPUs)))) * 1000
	switch c.Int(8) {
	case 1:
		millis = int64(1+c.Int(6)) * 500
	case 2:
		millis = int64(1+c.Int(len(in.Machine.CPUs)+1)) * 1000
	}
	memory := int64(1+c.Int(10)) * numaMiB
	switch c.Int(6) {
	case 1:
		memory += int64(c.Int(24)) * numaMiB
	case 2:
		memory += 1
	}
	if guaranteed || c.OneIn(2) {
		setResource(&container, corev1.ResourceCPU, resource.NewMilliQuantity(millis, resource.DecimalSI), guaranteed)
	}
	if guaranteed || c.OneIn(2) {
		setResource(&container, corev1.ResourceMemory, resource.NewQuantity(memory, resource.BinarySI), guaranteed)
	}
	if len(in.Machine.Nodes[0].HugePages) > 0 && c.OneIn(3) {
		setResource(&container, "hugepages-2Mi", resource.NewQuantity(2*int64(1+c.Int(4))*numaMiB, resource.BinarySI), true)
	}
	return container.Resources
}

// setResource sets the request of a container, and with limited its limit.
func setResource(container *corev1.Container, name corev1.ResourceName, q *resource.Quantity, limited bool) {
	if container.Resources.Requests == nil {
		container.Resources.Requests = corev1.ResourceList{}
	}
	container.Resources.Requests[name] = *q
	if limited {
		if container.Resources.Limits == nil {
			container.Resources.Limits = corev1.ResourceList{}
		}
		container.Resources.Limits[name] = *q
	}
}

// hasRestart reports whether the agent restarts.
func (in *placementInput) hasRestart() bool {
	for _, step := range in.Steps {
		if step.Restart != nil {
			return true
		}
	}
	return false
}
