// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// memoryPod is a pod for package numa.
type memoryPod struct {
	numa.Pod
	invalid    []error // by container: its requests are no numbers of bytes; nil: they are
	podInvalid error   // those of spec.resources
}

// newMemoryPod converts a pod, with the memory requests of its init containers, sidecars and regular containers.
func newMemoryPod(pod *corev1.Pod) *memoryPod {
	out := &memoryPod{Pod: numa.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		Guaranteed: qos.StatusClass(pod) == corev1.PodQOSGuaranteed, PodLevel: qos.HasPodLevelResources(pod),
	}}
	if out.PodLevel {
		out.Requests, out.podInvalid = numa.ConvertRequests(pod.Spec.Resources.Requests)
	}
	for _, c := range listContainers(pod) {
		requests, err := numa.ConvertRequests(c.spec.Resources.Requests)
		out.Containers = append(out.Containers, numa.Container{Name: c.spec.Name, Kind: c.kind, Requests: requests, Guaranteed: hasEqualLimits(c.spec)})
		out.invalid = append(out.invalid, err)
	}
	return out
}

// memoryPartner reserves the memory of one pod beside its devices and CPUs. It implements [device.Partner].
type memoryPartner struct {
	allocator   *numa.Allocator
	pod         *memoryPod
	reservation *numa.PodReservation
	lacks       []numa.Lack // of the container whose memory was refused last
	outcomes    []error     // of the last reservation for each container, in their order; the last may be an error
	isWholePod  bool        // the hints of the whole pod are merged
	before      numa.State  // before the reservation
}

// begin starts the reservation anew.
func (m *memoryPartner) begin() (err error) {
	m.lacks, m.outcomes = nil, nil
	m.reservation, err = m.allocator.Begin(&m.pod.Pod)
	return err
}

// Hints implements [device.Partner].
func (m *memoryPartner) Hints(container int) [][]device.Hint {
	if m.isWholePod = container == device.WholePod; m.isWholePod {
		return m.reservation.PodHints()
	}
	return m.reservation.Hints(container)
}

// Reserve implements [device.Partner].
func (m *memoryPartner) Reserve(container int, affinity device.Hint) error {
	err := m.takeMemory(container, affinity)
	m.outcomes = append(m.outcomes[:container], err)
	return err
}

// takeMemory reserves the memory of a container. Source: GetPodAdmitResult in pkg/kubelet/cm/admission/errors.go.
func (m *memoryPartner) takeMemory(container int, affinity device.Hint) error {
	isWhole := m.isWhole()
	invalid := m.pod.invalid[container]
	if isWhole {
		invalid = cmp.Or(m.pod.podInvalid, invalid)
	}
	if invalid != nil && m.needsMemory() && !m.pod.Running {
		return newRefusal(invalid)
	}
	var err error
	switch {
	case !isWhole:
		err = m.reservation.Take(affinity)
	case container == 0:
		err = m.reservation.TakePod(affinity)
	}
	refusal, ok := errors.AsType[*numa.Refusal](err)
	switch {
	case !ok:
		return err
	case refusal.Reason == device.ReasonUnexpectedAdmissionError:
		m.lacks = refusal.Lacks
		return newRefusal(err)
	}
	return &device.Refusal{Reason: refusal.Reason, Message: refusal.Message, Err: refusal}
}

// isWhole reports whether the memory of the pod is reserved as a whole.
func (m *memoryPartner) isWhole() bool {
	return m.isWholePod && m.allocator.Policy().IsPodLevel(&m.pod.Pod)
}

// needsMemory reports whether the containers of the pod have memory of their own.
func (m *memoryPartner) needsMemory() bool {
	policy := m.allocator.Policy()
	return policy.Name() == numa.PolicyStatic && m.pod.Guaranteed && (!m.pod.PodLevel || policy.IsPodLevel(&m.pod.Pod))
}

// reportPinnings calls the hook MemoryPinned for each container that was tried. A nil partner or hook does nothing.
func (m *memoryPartner) reportPinnings(hook func(numa.Pinning)) {
	if m == nil || hook == nil || len(m.outcomes) == 0 {
		return
	}
	policy := m.allocator.Policy()
	if m.isWhole() {
		for _, p := range policy.PodPinnings(m.before, m.allocator.State(), &m.pod.Pod, m.outcomes[0]) {
			hook(p)
		}
		return
	}
	for i, err := range m.outcomes {
		if p, ok := policy.Pinning(m.before, &m.pod.Pod, i, err); ok {
			hook(p)
		}
	}
}

func newRefusal(err error) error {
	return &device.Refusal{
		Reason: device.ReasonUnexpectedAdmissionError, Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), Err: err,
	}
}

// Undo implements [device.Partner].
func (m *memoryPartner) Undo(from int) { m.reservation.Undo(from) }

// Commit implements [device.Partner].
func (m *memoryPartner) Commit() error { return m.reservation.Commit() }

// explainRefusal returns why a container of the pod cannot have its memory, a text for each reason.
func (m *memoryPartner) explainRefusal() (lines []string) {
	lacks := m.lacks
	state := m.allocator.State()
	if m.isWhole() {
		_, err := m.allocator.Policy().ReservePod(state, &m.pod.Pod, device.Hint{})
		if refusal, ok := errors.AsType[*numa.Refusal](err); ok && refusal.Reason == device.ReasonEmptyPodSharedPoolError {
			return []string{refusal.Message}
		}
		if len(lacks) == 0 {
			lacks = m.allocator.Policy().ExplainPod(state, &m.pod.Pod)
		}
	}
	for i := 0; !m.isWhole() && len(lacks) == 0 && i < len(m.pod.Containers); i++ {
		lacks = m.allocator.Policy().Explain(state, &m.pod.Pod, i)
	}
	for _, l := range lacks {
		lines = append(lines, l.String())
	}
	return lines
}

// setMemoryNodes sets the NUMA nodes of a container that has memory of its own. It frees the memory of the init containers before it with
// numa.Kubelet.FreeInit. Source: PreCreateContainer and PreStartContainer in pkg/kubelet/cm/internal_container_lifecycle_linux.go.
func (p *Placement) setMemoryNodes(pod *corev1.Pod, container string, launch *podspec.Launch) error {
	if p.memory == nil {
		return nil
	}
	launch.MemoryNodes = p.memory.Policy().NodesOf(p.memory.State(), string(pod.UID), container).List()
	for i, c := range listContainers(pod) {
		if c.spec.Name == container {
			return p.memory.Start(&newMemoryPod(pod).Pod, i)
		}
	}
	return nil
}

// Memory returns the memory of a container. A container that shares the memory of its pod has none. It implements podresources.Memory.
func (p *Placement) Memory(podUID, container string) []device.MemoryBlock {
	if p.memory == nil || p.findRequests(podUID, container).sharesMemory {
		return nil
	}
	return p.memory.State().Blocks(podUID, container)
}

// PodMemory returns the memory that a pod has as a whole; nil: none. It implements podresources.Memory.
func (p *Placement) PodMemory(podUID string) []device.MemoryBlock {
	if p.memory == nil {
		return nil
	}
	return p.memory.State().Blocks(podUID, numa.WholePod)
}

// AllocatableMemory returns the memory that containers may have if none is in use: a block for each NUMA node and type. It implements
// podresources.Memory. Source: GetAllocatableMemory in pkg/kubelet/cm/memorymanager/policy_static.go.
func (p *Placement) AllocatableMemory() (blocks []device.MemoryBlock) {
	if p.memory == nil {
		return nil
	}
	return p.memory.Policy().Allocatable()
}
