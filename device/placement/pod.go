// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// startedContainer is a container of a pod with its kind.
type startedContainer struct {
	spec *corev1.Container
	kind device.ContainerKind
}

// listContainers returns the init containers, sidecars and regular containers of a pod in the order in which they start.
func listContainers(pod *corev1.Pod) (list []startedContainer) {
	for i := range pod.Spec.InitContainers {
		c := startedContainer{spec: &pod.Spec.InitContainers[i], kind: device.Init}
		if c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			c.kind = device.Sidecar
		}
		list = append(list, c)
	}
	for i := range pod.Spec.Containers {
		list = append(list, startedContainer{spec: &pod.Spec.Containers[i], kind: device.Regular})
	}
	return list
}

// newCPUPod converts a pod for package cpus, with the CPU requests of its init containers, sidecars and regular containers.
func newCPUPod(pod *corev1.Pod) *cpus.Pod {
	out := &cpus.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name,
		Guaranteed: qos.StatusClass(pod) == corev1.PodQOSGuaranteed, PodLevel: pod.Spec.Resources != nil,
	}
	for _, c := range listContainers(pod) {
		out.Containers = append(out.Containers, cpus.Container{Name: c.spec.Name, Kind: c.kind, Millis: qos.MilliValue(c.spec.Resources.Requests.Cpu())})
	}
	return out
}

// requests are the requests of a container.
type requests struct{ millicores, memory int64 }

// listRequests returns the requests of each container.
func listRequests(pod *corev1.Pod) map[string]requests {
	list := map[string]requests{}
	for _, c := range listContainers(pod) {
		r := c.spec.Resources.Requests
		list[c.spec.Name] = requests{millicores: qos.MilliValue(r.Cpu()), memory: r.Memory().Value()}
	}
	return list
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

// explainRejection reports the rejection of a pod to the hooks, and adds to the rejection why the pod cannot have its CPUs and memory. Other errors stay as
// they are. before is the state of the CPUs before the reservation.
func (p *Placement) explainRejection(err error, processors *cpuPartner, memory *memoryPartner, before cpus.State) error {
	rejection, ok := errors.AsType[*podstatus.Rejection](err)
	if !ok {
		return err
	}
	processors.reportPinnings(before)
	memory.reportPinnings(p.opts.Hooks.MemoryPinned)
	parts := []string{rejection.Explanation}
	if memory == nil || len(memory.lacks) == 0 { // otherwise the container has its CPUs
		parts = append(parts, processors.explainRefusal(before))
	}
	if memory != nil {
		parts = append(parts, memory.explainRefusal()...)
	}
	explained := *rejection
	explained.Explanation = strings.Join(slices.DeleteFunc(parts, func(text string) bool { return text == "" }), ". ")
	return &explained
}

// Container adds the devices, the CPUs and the NUMA nodes of a container to launch. It implements lifecycle.Devices.
func (p *Placement) Container(ctx context.Context, pod *corev1.Pod, container *corev1.Container, launch *podspec.Launch) error {
	if err := p.opts.Devices.Container(ctx, pod, container, launch); err != nil {
		return err
	}
	if err := p.setMemoryNodes(pod, container.Name, launch); err != nil {
		return err
	}
	if !p.hasCpusets() {
		return nil // containers run on all CPUs
	}
	set, _ := p.allocator.CPUs(string(pod.UID), container.Name)
	launch.CPUs = set.String()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.launched[containerKey{string(pod.UID), container.Name}] = set
	return nil
}

// Health implements lifecycle.Devices: it returns the devices of a container.
func (p *Placement) Health(uid, container string) []corev1.ResourceStatus {
	return p.opts.Devices.Health(uid, container)
}

// FailedAt implements lifecycle.DeviceFailures: it returns when a device of the container failed.
func (p *Placement) FailedAt(uid, container string) time.Time {
	return p.opts.Devices.FailedAt(uid, container)
}

// Release frees the devices, CPUs and memory of the pod with this UID. It implements lifecycle.Devices.
func (p *Placement) Release(ctx context.Context, uid string) error {
	p.mu.Lock()
	delete(p.requests, uid)
	delete(p.started, uid)
	maps.DeleteFunc(p.launched, func(key containerKey, _ topology.CPUSet) bool { return key.uid == uid })
	p.starting = slices.DeleteFunc(p.starting, func(c cpus.RunningContainer) bool { return c.PodUID == uid })
	p.mu.Unlock()
	err := errors.Join(p.opts.Devices.Release(ctx, uid), p.allocator.Release(uid))
	if p.memory != nil {
		err = errors.Join(err, p.memory.Release(uid))
	}
	return err
}

// HasExclusiveCPUs reports whether a container has exclusive CPUs, so that its CPU limit needs no quota. The container "" stands for any container of the
// pod. It is the function qos.Node.ExclusiveCPUs. A nil Placement has no exclusive CPUs.
func (p *Placement) HasExclusiveCPUs(pod *corev1.Pod, container string) bool {
	if p == nil {
		return false
	}
	containers := p.allocator.State().Assigned[string(pod.UID)]
	if container != "" {
		set := containers[container]
		return !set.IsEmpty()
	}
	for _, set := range containers {
		if !set.IsEmpty() {
			return true
		}
	}
	return false
}

// AdmitResize refuses the resize of a Guaranteed pod that changes a CPU request under the CPU policy static, or a memory request under the memory policy
// Static, unless Options.ResizeCPUs or Options.ResizeMemory permits the resize. It is for lifecycle.Options.AdmitResize. Source:
// pkg/kubelet/allocation/handlers.go.
func (p *Placement) AdmitResize(pod *corev1.Pod) error {
	isStatic := p.opts.Policy.Name() == cpus.PolicyStatic && !p.opts.ResizeCPUs
	isMemoryStatic := p.memory != nil && p.memory.Policy().Name() == numa.PolicyStatic && !p.opts.ResizeMemory
	if !isStatic && !isMemoryStatic || qos.StatusClass(pod) != corev1.PodQOSGuaranteed {
		return nil
	}
	p.mu.Lock()
	before := p.requests[string(pod.UID)]
	p.mu.Unlock()
	cpuChanged, memoryChanged := false, false
	for name, r := range listRequests(pod) {
		if was, known := before[name]; known {
			cpuChanged, memoryChanged = cpuChanged || was.millicores != r.millicores, memoryChanged || was.memory != r.memory
		}
	}
	switch {
	case isStatic && cpuChanged:
		return newInfeasible("CPU", cpus.PolicyStatic)
	case isMemoryStatic && memoryChanged:
		return newInfeasible("Memory", numa.PolicyStatic)
	}
	return nil
}

// newInfeasible returns the rejection of a resize alongside a policy of a manager.
func newInfeasible(manager, policy string) error {
	return &podstatus.Rejection{Reason: "Infeasible", Message: fmt.Sprintf("Resize is infeasible for Guaranteed Pods alongside %s Manager policy %q", manager, policy)}
}

// CPUs returns the IDs of the exclusive CPUs of a container. It implements podresources.CPUs.
func (p *Placement) CPUs(podUID, container string) (ids []int64) {
	if set, exclusive := p.allocator.CPUs(podUID, container); exclusive {
		for id := range set.All() {
			ids = append(ids, int64(id))
		}
	}
	return ids
}

// AllocatableCPUs returns the IDs of the CPUs that containers may have exclusively. It implements podresources.CPUs.
func (p *Placement) AllocatableCPUs() (ids []int64) {
	for id := range p.opts.Policy.Allocatable().All() {
		ids = append(ids, int64(id))
	}
	return ids
}
