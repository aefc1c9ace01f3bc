// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// Messages of an infeasible resize, with the text of the kubelet and the API server.
const (
	messageResizeUnsupported = "In-place pod resize is not supported on this node"
	messageResizeSwap        = "In-place resize of containers with swap is not supported."
	messageResizeClass       = "Pod QOS Class may not change as a result of resizing"
)

// State is the input of [Decide]: the requested, allocated and actual resources of a pod.
type State struct {
	Pod      *corev1.Pod // with the resources that its spec requests
	Sizes    *Sizes      // of Pod; nil: Decide computes them
	Observed cri.Pod
	Spec     podspec.Options
	// Allocated is the allocation of the pod. Nil: no record has it, and it is inferred from the containers.
	Allocated *Allocation
	// SentSizes are the sizes last sent to the runtime, also by a kubelet, by container ID. For a container without an entry, the size is read from
	// its annotation and from the resources that the runtime reports.
	SentSizes map[string]cgroups.ContainerSize
	// CgroupSizes are the sizes that the pod cgroup was set up for. A completed init container keeps its size there. Nil or a
	// missing container: the allocated size.
	CgroupSizes *Sizes
	// NoCgroup is true if the runtime creates the pod cgroup. The containers of CgroupSizes are then ignored.
	NoCgroup bool
	// NoUpdates is true if the runtime cannot change the resources of a running container.
	NoUpdates bool
}

// Decision is the result of [Decide] for the resources of a pod.
type Decision struct {
	// Pod is the pod with its allocated resources: those of the spec, or the previous ones while the resize is deferred or
	// infeasible.
	Pod *corev1.Pod
	// Sizes are the sizes of Pod.
	Sizes *Sizes
	// Containers are the running or created containers whose resources differ from those of Pod.
	Containers []Container
	// ResizedSinceCreate is true if a container was created while the pod had other resources. Values that were summed over the
	// containers at that time may be outdated.
	ResizedSinceCreate bool
	// InProgress is true if a running container, or the pod cgroup, has other resources than the allocated ones. Source:
	// IsPodResizeInProgress in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
	InProgress bool
	// Actual is the pod with the resources that its containers and its cgroup have. Nil: those of Pod.
	Actual *corev1.Pod
	// Previous is the pod with the previously allocated resources. Nil: the spec requests no other resources.
	Previous *corev1.Pod
	// Reason is Infeasible or Deferred, with the Message of the condition PodResizePending. Empty: the resize is accepted, or
	// there is none.
	Reason, Message string
	// Cause is the reason of the admission error that deferred the resize, such as OutOfcpu, for the event. The caller of
	// Deferred sets it. Empty: use Reason.
	Cause string

	// Set by the caller for the status; Decide leaves them empty.
	Generation int64  // of the spec that requested the resize
	Error      string // of the last failed attempt to resize

	previousDecision *Decision // decision for Previous; nil: it needs no action
}

// Container is a container whose resources must change from From to To.
type Container struct {
	ID, Name string
	From, To cgroups.ContainerSize
	Restart  bool // the resizePolicy of the container requires a restart
}

// Decide compares the resources in the spec of a pod with its allocated and actual resources, and returns the containers to
// resize. The Reason is set if the node can never perform the resize. Decide does not check the free resources of the node;
// see [Decision.IsResize]. Source: computePodResizeAction in pkg/kubelet/kuberuntime/kuberuntime_manager.go,
// pkg/kubelet/allocation.
func Decide(state State) Decision {
	if state.Allocated == nil || state.NoUpdates || state.NoCgroup {
		state.CgroupSizes = state.CgroupSizes.podLevelOnly() // then the actual resources are allocated
	}
	z := state.decideActuation(state.Pod)
	if state.Allocated == nil || state.NoUpdates { // the containers keep their resources
		z.Previous = z.Actual
	} else if allocated := state.Allocated.Apply(state.Pod); allocated != state.Pod {
		kept := state.decideActuation(allocated)
		z.Previous, z.previousDecision = allocated, &kept
	}
	if z.Previous == nil {
		return z
	}
	if reason, message := state.findRefusal(&z); reason != "" {
		return z.pendingDecision(reason, message)
	}
	return z
}

// decideActuation returns the decision that makes the resources in the spec of pod the actual ones, allocated or not.
func (s State) decideActuation(pod *corev1.Pod) Decision {
	if s.Sizes == nil || s.Pod != pod {
		s.Pod, s.Sizes = pod, SizesOf(pod)
	}
	z := Decision{Pod: pod, Sizes: s.Sizes}
	var differ []Container // running or not
	i := -1
	for c := range containers.NotEphemeral(&pod.Spec) {
		i++
		have, to := s.Observed.NewestContainer(c.Name), s.Sizes.Containers[i].Size
		if have == nil || have.State != cri.ContainerRunning && containers.IsInit(&pod.Spec, c) && !containers.IsSidecar(c) {
			// An init container that does not run is not resized.
			if sized, ok := s.CgroupSizes.SizeOf(c.Name); ok && sized != to && HasCompleted(&pod.Spec, c.Name, s.Observed) {
				differ = append(differ, Container{Name: c.Name, From: sized, To: to})
			}
			continue
		}
		created, known := ParseSize(have.Annotations[AnnotationResources])
		z.ResizedSinceCreate = z.ResizedSinceCreate || known && created != to
		from := s.actualSize(c, have, to)
		if from == to {
			continue
		}
		r := Container{ID: have.ID, Name: c.Name, From: from, To: to, Restart: mustRestart(c, from, to)}
		differ = append(differ, r)
		if have.State == cri.ContainerRunning || have.State == cri.ContainerCreated {
			z.Containers = append(z.Containers, r)
		}
		z.InProgress = z.InProgress || have.State == cri.ContainerRunning
	}
	podLevelDiffers := s.CgroupSizes != nil && s.CgroupSizes.PodLevel() != s.Sizes.PodLevel()
	z.InProgress = z.InProgress || podLevelDiffers && podview.IsRunning(s.Observed)
	if len(differ) > 0 || podLevelDiffers {
		z.Actual = withSizes(pod, differ)
	}
	if podLevelDiffers {
		z.Actual.Spec.Resources = podLevelRequirements(pod, s.CgroupSizes.PodLevel())
	}
	return z
}

// SizeOf returns the resources that a container must have according to the spec of pod. If pod is d.Pod, it returns the size
// in d.Sizes without computing it again.
func (d *Decision) SizeOf(pod *corev1.Pod, container *corev1.Container) cgroups.ContainerSize {
	if d.Pod == pod {
		if size, ok := d.Sizes.SizeOf(container.Name); ok {
			return size
		}
	}
	return SizeOf(&pod.Spec, container)
}

// HasCompleted reports whether the named container is an init container, but not a sidecar, whose newest instance has exited
// with code 0. As in the kubelet, a resize changes neither this container nor its share of the pod cgroup. Source:
// computePodActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func HasCompleted(pod *corev1.PodSpec, name string, observed cri.Pod) bool {
	c, instance := containers.Named(pod, name), observed.NewestContainer(name)
	return c != nil && containers.IsInit(pod, c) && !containers.IsSidecar(c) && instance != nil && instance.State == cri.ContainerExited && instance.ExitCode == 0
}

// podLevelRequirements returns the pod-level resources of pod, with the requests and limits of size. A zero size means no
// pod-level resources, and the result is nil.
func podLevelRequirements(pod *corev1.Pod, size cgroups.ContainerSize) *corev1.ResourceRequirements {
	if size == (cgroups.ContainerSize{}) {
		return nil
	}
	var c corev1.Container
	if pod.Spec.Resources != nil {
		c.Resources = *pod.Spec.Resources
	}
	c = WithSize(&c, size)
	return &c.Resources
}

// IsResize reports whether d resizes the pod: the spec requests resources that differ from the allocated ones, and d has no
// Reason against the resize. The caller must then check the free resources of the node.
func (d *Decision) IsResize() bool { return d.Previous != nil && d.Reason == "" }

// Deferred returns the decision for a pod that does not fit on the node now, but may fit later. message is the reason.
func (d *Decision) Deferred(message string) Decision {
	return d.pendingDecision(corev1.PodReasonDeferred, message)
}

// Infeasible returns the decision for a pod that can never fit on the node. message is the reason.
func (d *Decision) Infeasible(message string) Decision {
	return d.pendingDecision(corev1.PodReasonInfeasible, message)
}

// pendingDecision returns the decision to reject or defer the resize: the pod gets its allocated resources.
func (d *Decision) pendingDecision(reason, message string) Decision {
	var p Decision
	if d.previousDecision != nil {
		p = *d.previousDecision
	} else {
		p.Pod, p.Sizes = d.Previous, SizesOf(d.Previous)
	}
	p.Previous, p.Reason, p.Message = d.Previous, reason, message
	return p
}

// findRefusal returns the reason and the message if a resize from decision.Previous to decision.Pod is impossible on this
// node. An empty reason means that the resize is possible.
func (s *State) findRefusal(decision *Decision) (reason, message string) {
	before := decision.Previous
	if s.NoUpdates {
		return corev1.PodReasonInfeasible, messageResizeUnsupported
	}
	if qos.Class(s.Pod) != qos.Class(before) {
		return corev1.PodReasonInfeasible, messageResizeClass
	}
	for c := range containers.NotEphemeral(&s.Pod.Spec) {
		// The swap limit follows from the memory request and cannot change while the container runs.
		previous := SizeOf(&before.Spec, containers.Named(&before.Spec, c.Name))
		if to, _ := decision.Sizes.SizeOf(c.Name); previous.MemoryRequest != to.MemoryRequest &&
			!hasRestartPolicy(c, corev1.ResourceMemory) && (s.canSwap(s.Pod, c.Name) || s.canSwap(before, c.Name)) {
			return corev1.PodReasonInfeasible, messageResizeSwap
		}
	}
	return "", ""
}

func (s *State) canSwap(pod *corev1.Pod, name string) bool {
	if s.Spec.Node == nil {
		return false
	}
	limit, _ := qos.SwapLimit(pod, containers.Named(&pod.Spec, name), *s.Spec.Node)
	return limit > 0
}

// mustRestart reports whether a resize of the container from one size to another requires a restart, according to its
// resizePolicy.
func mustRestart(container *corev1.Container, from, to cgroups.ContainerSize) bool {
	return (from.CPURequest != to.CPURequest || from.CPULimit != to.CPULimit) && hasRestartPolicy(container, corev1.ResourceCPU) ||
		(from.MemoryRequest != to.MemoryRequest || from.MemoryLimit != to.MemoryLimit) && hasRestartPolicy(container, corev1.ResourceMemory)
}

func hasRestartPolicy(container *corev1.Container, name corev1.ResourceName) bool {
	return slices.Contains(container.ResizePolicy, corev1.ContainerResizePolicy{
		ResourceName: name, RestartPolicy: corev1.RestartContainer,
	})
}

// WithInitSizes returns pod with the resources in sizes for its init containers. Sidecars keep their resources. If no
// resource changes, the result is pod itself, and otherwise a copy.
func WithInitSizes(pod *corev1.Pod, sizes *Sizes) *corev1.Pod {
	var differ []Container
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		to := SizeOf(&pod.Spec, c)
		if size, ok := sizes.SizeOf(c.Name); ok && size != to && !containers.IsSidecar(c) {
			differ = append(differ, Container{Name: c.Name, From: size, To: to})
		}
	}
	if len(differ) == 0 {
		return pod
	}
	return withSizes(pod, differ)
}

// withSizes returns a copy of pod in which each container in resizes has the resources in its field From.
func withSizes(pod *corev1.Pod, resizes []Container) *corev1.Pod {
	p := *pod
	p.Spec.Containers, p.Spec.InitContainers = slices.Clone(p.Spec.Containers), slices.Clone(p.Spec.InitContainers)
	for _, r := range resizes {
		c := containers.Named(&p.Spec, r.Name)
		own := c.Resources
		*c = WithSize(c, r.From)
		if pod.Spec.Resources == nil {
			continue
		}
		for name, limit := range pod.Spec.Resources.Limits {
			if q := own.Limits[name]; !q.IsZero() || limit.IsZero() {
				continue
			}
			// The container inherits this limit from the pod.
			delete(c.Resources.Limits, name)
			if _, ok := own.Requests[name]; !ok {
				delete(c.Resources.Requests, name)
			}
		}
	}
	return &p
}
