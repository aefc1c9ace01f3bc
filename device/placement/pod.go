// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
		Guaranteed: qos.StatusClass(pod) == corev1.PodQOSGuaranteed, PodLevel: qos.HasPodLevelResources(pod),
	}
	if out.PodLevel {
		out.Millis = qos.MilliValue(pod.Spec.Resources.Requests.Cpu())
	}
	for _, c := range listContainers(pod) {
		out.Containers = append(out.Containers, cpus.Container{
			Name: c.spec.Name, Kind: c.kind, Millis: qos.MilliValue(c.spec.Resources.Requests.Cpu()), Guaranteed: hasEqualLimits(c.spec),
		})
	}
	return out
}

// hasEqualLimits reports whether the limits of CPU and memory of a container equal its requests, and are not zero. Source:
// IsContainerEquivalentQOSGuaranteed in pkg/kubelet/cm/qos.
func hasEqualLimits(c *corev1.Container) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
		if request.IsZero() || !request.Equal(limit) {
			return false
		}
	}
	return true
}

// requests are the requests of a container.
type requests struct {
	millicores, memory       int64
	sharesCPUs, sharesMemory bool // with other containers of its pod; see cpus.State.SharesPod
}

// listRequests returns the requests of each container.
func listRequests(pod *corev1.Pod) map[string]requests {
	list := map[string]requests{}
	for _, c := range listContainers(pod) {
		r := c.spec.Resources.Requests
		list[c.spec.Name] = requests{millicores: qos.MilliValue(r.Cpu()), memory: r.Memory().Value()}
	}
	return list
}

// Container adds the devices, the CPUs and the NUMA nodes of a container to launch. Call it before each creation of the container. Without a successful
// Reserve for the pod, it returns an error if the limits of the container name devices; any other container gets the shared pool and all NUMA nodes. It
// implements lifecycle.Devices.
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

// Health returns the devices of a container with their health, for its status. It implements lifecycle.Devices.
func (p *Placement) Health(uid, container string) []corev1.ResourceStatus {
	return p.opts.Devices.Health(uid, container)
}

// FailedAt implements lifecycle.DeviceFailures: it returns when a device of the container failed, or the zero time; see poddevice.Devices.FailedAt.
func (p *Placement) FailedAt(uid, container string) time.Time {
	return p.opts.Devices.FailedAt(uid, container)
}

// Release frees the devices, CPUs and memory of the pod with this UID, after the pod has terminated. It returns nil for a pod without resources. After an
// error, call Release again. It implements lifecycle.Devices.
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

// HasExclusiveCPUs reports whether a container has CPUs for itself, so that its CPU limit needs no quota. CPUs that it shares with containers of its pod
// do not count. If container is empty, the result is true if at least one container has CPUs for itself; for a pod with pod-level resources, if all
// containers have. HasExclusiveCPUs is for qos.Node.ExclusiveCPUs. For a nil Placement it returns false. Source: PodHasExclusiveCPUs and
// ContainerHasExclusiveCPUs in pkg/kubelet/cm/container_manager_linux.go.
func (p *Placement) HasExclusiveCPUs(pod *corev1.Pod, container string) bool {
	if p == nil {
		return false
	}
	state := p.allocator.State()
	assigned := state.Assigned[string(pod.UID)]
	if len(assigned) == 0 {
		return false
	}
	isShared, isPodLevel := map[string]bool{}, qos.HasPodLevelResources(pod)
	if isPodLevel {
		converted := newCPUPod(pod)
		for i, c := range converted.Containers {
			isShared[c.Name] = state.SharesPod(converted, i)
		}
	}
	isExclusive := func(name string) bool {
		set := assigned[name]
		return !set.IsEmpty() && !isShared[name]
	}
	if container != "" {
		return isExclusive(container)
	}
	names := listNames(pod)
	if !isPodLevel {
		return slices.ContainsFunc(names, isExclusive)
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !isExclusive(name) })
}

// listNames returns the names of the init containers, sidecars and regular containers of a pod.
func listNames(pod *corev1.Pod) (names []string) {
	for _, c := range listContainers(pod) {
		names = append(names, c.spec.Name)
	}
	return names
}

// AdmitResize admits an in-place resize, for lifecycle.Options.AdmitResize. pod has the new requests. AdmitResize compares them with those at the first
// Reserve of the pod since the agent started, and returns a [*podstatus.Rejection] with the reason Infeasible if the pod is Guaranteed and
//   - a request for CPU differs, the CPU manager policy is static and Options.ResizeCPUs is false; or
//   - a request for memory differs, the memory manager policy is Static and Options.ResizeMemory is false.
//
// Before that Reserve, it returns an error that is no rejection. Source: pkg/kubelet/allocation/handlers.go.
func (p *Placement) AdmitResize(pod *corev1.Pod) error {
	isStatic := p.opts.Policy.Name() == cpus.PolicyStatic && !p.opts.ResizeCPUs
	isMemoryStatic := p.memory != nil && p.memory.Policy().Name() == numa.PolicyStatic && !p.opts.ResizeMemory
	if !isStatic && !isMemoryStatic || qos.StatusClass(pod) != corev1.PodQOSGuaranteed {
		return nil
	}
	p.mu.Lock()
	before, isKnown := p.requests[string(pod.UID)]
	p.mu.Unlock()
	if !isKnown {
		return fmt.Errorf("pod %s/%s is resized after its CPUs and memory are reserved", pod.Namespace, pod.Name)
	}
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

// CPUs returns the IDs of the CPUs that a container has for itself, in ascending order. It returns nil for a container in the shared pool, and for a
// container that shares the CPUs of its pod. A restarted agent cannot tell the latter before Reserve is called for the pod: until then CPUs returns the
// CPUs that it shares with its pod. It implements podresources.CPUs.
func (p *Placement) CPUs(podUID, container string) []int64 {
	set, exclusive := p.allocator.CPUs(podUID, container)
	if !exclusive || p.findRequests(podUID, container).sharesCPUs {
		return nil
	}
	return listIDs(set)
}

// PodCPUs returns the IDs of the CPUs that a pod has as a whole; nil: none. It implements podresources.CPUs.
func (p *Placement) PodCPUs(podUID string) []int64 {
	return listIDs(p.allocator.State().Assigned[podUID][cpus.WholePod])
}

// AllocatableCPUs returns the IDs of the CPUs that containers may have exclusively. It implements podresources.CPUs.
func (p *Placement) AllocatableCPUs() []int64 { return listIDs(p.opts.Policy.Allocatable()) }

// listIDs returns the IDs in a set of CPUs.
func listIDs(set topology.CPUSet) (ids []int64) {
	for id := range set.All() {
		ids = append(ids, int64(id))
	}
	return ids
}

// findRequests returns the requests of a container at the last Reserve.
func (p *Placement) findRequests(podUID, container string) requests {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[podUID][container]
}
