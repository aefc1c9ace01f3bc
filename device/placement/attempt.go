// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// attempt is one attempt to reserve the devices, CPUs and memory of a pod for which this agent has reserved nothing before.
type attempt struct {
	placement  *Placement
	pod        *corev1.Pod
	isRunning  bool // the pod is not refused if it cannot have its CPUs or memory
	processors *cpuPartner
	memory     *memoryPartner // nil: no container has memory of its own
	before     cpus.State     // before the attempt
}

// tryReserve attempts to reserve the devices, CPUs and memory of a pod, or nothing. With isRunning, a pod that cannot have its CPUs or memory is not refused.
func (p *Placement) tryReserve(ctx context.Context, pod *corev1.Pod, isRunning bool) (*attempt, error) {
	a := &attempt{placement: p, pod: pod, isRunning: isRunning, before: p.allocator.State()}
	a.processors = &cpuPartner{placement: p, pod: newCPUPod(pod)}
	a.processors.pod.Running = isRunning
	_, a.processors.had = a.before.Assigned[string(pod.UID)]
	partners := []partner{a.processors}
	if p.memory != nil {
		a.memory = &memoryPartner{allocator: p.memory, pod: newMemoryPod(pod), before: p.memory.State()}
		a.memory.pod.Running = isRunning
		partners = append(partners, a.memory)
	}
	return a, a.reservePartners(ctx, partners)
}

// reservePartners reserves the devices of the pod together with the resources of partners, or nothing. A pod that runs already is not refused because its
// resources are on other NUMA nodes than the topology policy permits by now: it keeps its devices, and partners reserve without a merged hint. In the
// kubelet, a restart refuses such a pod (kubernetes/kubernetes#138446).
func (a *attempt) reservePartners(ctx context.Context, partners []partner) error {
	devices := a.placement.opts.Devices
	list := make([]device.Partner, len(partners))
	for i, other := range partners {
		if err := other.begin(); err != nil {
			return err
		}
		list[i] = other
	}
	err := devices.ReserveWith(ctx, a.pod, list...)
	rejection, isRejected := errors.AsType[*podstatus.Rejection](err)
	if !a.isRunning || !isRejected || rejection.Reason != device.ReasonTopologyAffinityError {
		return err
	}
	if err := devices.Reserve(ctx, a.pod); err != nil {
		return err
	}
	for _, other := range partners {
		err := other.begin()
		for i := 0; err == nil && i < len(a.processors.pod.Containers); i++ {
			err = other.Reserve(i, device.Hint{})
		}
		if err == nil {
			err = other.Commit()
		}
		if err != nil {
			other.Undo(0)
			return err
		}
	}
	return nil
}

// completeReservation reports a successful attempt to the hooks, stores the requests of the pod, and waits until other containers have left the CPUs of the pod.
func (a *attempt) completeReservation(ctx context.Context) {
	a.reportPinnings()
	a.storeRequests()
	// A previous agent may have been killed before other containers had left these CPUs: only a pod that runs on them already need not wait.
	before, after := a.before.Assigned[string(a.pod.UID)], a.placement.allocator.State().Assigned[string(a.pod.UID)]
	if keeps := a.isRunning && maps.Equal(before, after); len(after) > 0 && !keeps && !a.placement.opts.Kubelet.LateShared {
		a.placement.emptyCPUs(ctx, a.pod)
	}
}

// reportPinnings calls the hooks for the containers that were tried.
func (a *attempt) reportPinnings() {
	a.processors.reportPinnings(a.before)
	a.memory.reportPinnings(a.placement.opts.Hooks.MemoryPinned)
}

// storeRequests stores the requests of the pod, which has its CPUs and memory.
func (a *attempt) storeRequests() {
	p := a.placement
	list, state := listRequests(a.pod), p.allocator.State()
	for i, c := range a.processors.pod.Containers {
		r := list[c.Name]
		r.sharesCPUs = state.SharesPod(a.processors.pod, i)
		r.sharesMemory = a.memory != nil && p.memory.State().SharesPod(&a.memory.pod.Pod, i)
		list[c.Name] = r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[string(a.pod.UID)] = list
}

// explainRejection adds to the rejection why the pod cannot have its CPUs and memory.
func (a *attempt) explainRejection(rejection *podstatus.Rejection) error {
	parts := []string{rejection.Explanation}
	if a.memory == nil || len(a.memory.lacks) == 0 { // otherwise the container has its CPUs
		parts = append(parts, a.processors.explainRefusal(a.before))
	}
	if a.memory != nil {
		parts = append(parts, a.memory.explainRefusal()...)
	}
	explained := *rejection
	explained.Explanation = strings.Join(slices.DeleteFunc(parts, func(text string) bool { return text == "" }), ". ")
	return &explained
}

// settleTimeout limits how long Reserve waits until running containers have left the CPUs of a new pod.
const settleTimeout = 10 * time.Second

// emptyCPUs waits until the containers in the shared pool have left the CPUs of a pod. If one of them cannot be updated, the pod starts nevertheless, and the
// writer tries again: a container that hangs delays no other pod for longer than settleTimeout.
func (p *Placement) emptyCPUs(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := p.writer.Settle(ctx); err != nil && !errors.Is(err, context.Canceled) {
		p.log.Error("containers of the shared pool may still run on exclusive CPUs", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
	}
}
