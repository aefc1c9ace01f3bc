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

// The messages of a resize that cannot be, as the kubelet's users and those of the API server know them.
const (
	messageResizeUnsupported = "In-place pod resize is not supported on this node"
	messageResizeSwap        = "In-place resize of containers with swap is not supported."
	messageResizeClass       = "Pod QOS Class may not change as a result of resizing"
)

// State is what [Decide] decides by.
type State struct {
	Pod      *corev1.Pod // as its spec asks for
	Sizes    *Sizes      // of Pod; nil: Decide computes them
	Observed cri.Pod
	Spec     podspec.Options
	// Allocated is what the node has granted the pod. Nil: no record says so, and it is inferred from what the containers have.
	Allocated *Allocation
	// Told is what the runtime was told last of a container that runs, by its ID. Of one that is not in it, what it has
	// is read from its annotation and from what the runtime says.
	Told map[string]cgroups.ContainerSize
	// Sized are the resources that the cgroup of the pod is for: those of an init container that has completed stay counted. Of a container that
	// is not in it, those that are allocated. Nil: those that are allocated.
	Sized *Sizes
	// NoCgroup says that the runtime creates the cgroup of the pod: the containers of Sized do not count.
	NoCgroup bool
	// Fixed says that the runtime cannot change a container that runs.
	Fixed bool
}

// Decision is what a change of the resources in the spec of a pod comes to.
type Decision struct {
	// Pod is the pod with the resources that are allocated to it: those of the spec or, as long as these are not to be had,
	// those that it was granted before.
	Pod *corev1.Pod
	// Sizes are those of Pod.
	Sizes *Sizes
	// Containers are those that run, or were made and are to run, with other resources than these.
	Containers []Container
	// Changed says that a container was made when the pod had other resources. What was summed up over the containers then
	// may be out of date, whether or not they have what they are to have now.
	Changed bool
	// InProgress says that a running container, or the pod as a whole, has other resources than are allocated. Source:
	// IsPodResizeInProgress in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
	InProgress bool
	// InForce is the pod with the resources that its containers and its cgroup have. Nil: those of Pod.
	InForce *corev1.Pod
	// Before is the pod with the resources that it was granted before. Nil: the spec asks for no others.
	Before *corev1.Pod
	// Reason and Message say why the resources of the spec are not to be had: Infeasible or Deferred. Empty: they are.
	Reason, Message string
	// Cause is the reason of the rejection that deferred the resize, such as OutOfcpu, for the event; it is set by the caller of Deferred.
	// Empty: as Reason.
	Cause string

	// What a status has of a resize that goes on, and [Decide] does not know.
	Generation int64  // of the spec that asked for it
	Error      string // why it failed the last time

	kept *Decision // for Before; nil: nothing is to be done for it
}

// Container is one that is to have other resources than it has.
type Container struct {
	ID, Name string
	From, To cgroups.ContainerSize
	Restart  bool // its policy is to start it anew with them
}

// Decide says which containers of a pod are to have other resources, and whether they may, but for the room that the node
// has for them: see [Decision.Resizes]. The same state gives the same decision. Source: computePodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, pkg/kubelet/allocation.
func Decide(s State) Decision {
	if s.Allocated == nil || s.Fixed || s.NoCgroup {
		s.Sized = s.Sized.withoutContainers() // what is in force is allocated
	}
	z := s.actuate(s.Pod)
	if s.Allocated == nil || s.Fixed { // what cannot be changed stays what the containers have
		z.Before = z.InForce
	} else if allocated := s.Allocated.Apply(s.Pod); allocated != s.Pod {
		kept := s.actuate(allocated)
		z.Before, z.kept = allocated, &kept
	}
	if z.Before == nil {
		return z
	}
	if reason, message := s.refuse(&z); reason != "" {
		return z.pending(reason, message)
	}
	return z
}

// actuate returns what is to be done so that a pod has the resources of its spec, which are allocated to it.
func (s State) actuate(pod *corev1.Pod) Decision {
	if s.Sizes == nil || s.Pod != pod {
		s.Pod, s.Sizes = pod, SizesOf(pod)
	}
	z := Decision{Pod: pod, Sizes: s.Sizes}
	var differ []Container // whether they run or not
	i := -1
	for c := range containers.NotEphemeral(&pod.Spec) {
		i++
		have, to := s.Observed.NewestContainer(c.Name), s.Sizes.Containers[i].Size
		if have == nil || have.State != cri.ContainerRunning && containers.IsInit(&pod.Spec, c) && !containers.IsSidecar(c) {
			// An init container that does not run has had its turn.
			if sized, ok := s.Sized.Of(c.Name); ok && sized != to && HasCompleted(&pod.Spec, c.Name, s.Observed) {
				differ = append(differ, Container{Name: c.Name, From: sized, To: to})
			}
			continue
		}
		born, known := ParseSize(have.Annotations[AnnotationResources])
		z.Changed = z.Changed || known && born != to
		from := s.inForce(c, have, to)
		if from == to {
			continue
		}
		r := Container{ID: have.ID, Name: c.Name, From: from, To: to, Restart: restarts(c, from, to)}
		differ = append(differ, r)
		if have.State == cri.ContainerRunning || have.State == cri.ContainerCreated {
			z.Containers = append(z.Containers, r)
		}
		z.InProgress = z.InProgress || have.State == cri.ContainerRunning
	}
	whole := s.Sized != nil && s.Sized.PodLevel() != s.Sizes.PodLevel()
	z.InProgress = z.InProgress || whole && podview.Running(s.Observed)
	if len(differ) > 0 || whole {
		z.InForce = withSizes(pod, differ)
	}
	if whole {
		z.InForce.Spec.Resources = podLevel(pod, s.Sized.PodLevel())
	}
	return z
}

// SizeOf returns the resources that container c of pod is to have: from Sizes where the decision is about pod.
func (d *Decision) SizeOf(pod *corev1.Pod, c *corev1.Container) cgroups.ContainerSize {
	if d.Pod == pod {
		if size, ok := d.Sizes.Of(c.Name); ok {
			return size
		}
	}
	return SizeOf(&pod.Spec, c)
}

// HasCompleted reports whether a container is an init container that has completed. A resize of it changes neither the container nor the cgroup of the
// pod, as in the kubelet: see computePodActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func HasCompleted(pod *corev1.PodSpec, name string, observed cri.Pod) bool {
	c, instance := containers.Named(pod, name), observed.NewestContainer(name)
	return c != nil && containers.IsInit(pod, c) && !containers.IsSidecar(c) && instance != nil && instance.State == cri.ContainerExited && instance.ExitCode == 0
}

// podLevel returns the pod-level resources of a pod whose cgroup is for a size, or nil where it is for none.
func podLevel(pod *corev1.Pod, size cgroups.ContainerSize) *corev1.ResourceRequirements {
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

// Resizes reports whether the spec asks for other resources than are allocated, which are to be had here: whether to ask if
// the node has room for the pod as it is to be.
func (d *Decision) Resizes() bool { return d.Before != nil && d.Reason == "" }

// Deferred returns the decision for a node that has no room for the pod now, and why.
func (d *Decision) Deferred(message string) Decision {
	return d.pending(corev1.PodReasonDeferred, message)
}

// Infeasible returns the decision for a node that never has room for the pod, and why.
func (d *Decision) Infeasible(message string) Decision {
	return d.pending(corev1.PodReasonInfeasible, message)
}

// pending returns the decision that leaves the pod what it was granted before. What is not in force of that still comes.
func (d *Decision) pending(reason, message string) Decision {
	var p Decision
	if d.kept != nil {
		p = *d.kept
	} else {
		p.Pod, p.Sizes = d.Before, SizesOf(d.Before)
	}
	p.Before, p.Reason, p.Message = d.Before, reason, message
	return p
}

// refuse returns why the pod of z may not have the resources of its spec, on this node, instead of those of z.Before.
func (s *State) refuse(z *Decision) (reason, message string) {
	before := z.Before
	if s.Fixed {
		return corev1.PodReasonInfeasible, messageResizeUnsupported
	}
	if qos.Class(s.Pod) != qos.Class(before) {
		return corev1.PodReasonInfeasible, messageResizeClass
	}
	for c := range containers.NotEphemeral(&s.Pod.Spec) {
		// How much a container may swap follows from its request, and cannot be changed while it runs.
		was := SizeOf(&before.Spec, containers.Named(&before.Spec, c.Name))
		if to, _ := z.Sizes.Of(c.Name); was.MemoryRequest != to.MemoryRequest &&
			!restartsFor(c, corev1.ResourceMemory) && (s.swaps(s.Pod, c.Name) || s.swaps(before, c.Name)) {
			return corev1.PodReasonInfeasible, messageResizeSwap
		}
	}
	return "", ""
}

func (s *State) swaps(pod *corev1.Pod, name string) bool {
	if s.Spec.Node == nil {
		return false
	}
	limit, _ := qos.SwapLimit(pod, containers.Named(&pod.Spec, name), *s.Spec.Node)
	return limit > 0
}

// restarts reports whether a container is to be started anew to have other resources.
func restarts(c *corev1.Container, from, to cgroups.ContainerSize) bool {
	return (from.CPURequest != to.CPURequest || from.CPULimit != to.CPULimit) && restartsFor(c, corev1.ResourceCPU) ||
		(from.MemoryRequest != to.MemoryRequest || from.MemoryLimit != to.MemoryLimit) && restartsFor(c, corev1.ResourceMemory)
}

func restartsFor(c *corev1.Container, name corev1.ResourceName) bool {
	return slices.Contains(c.ResizePolicy, corev1.ContainerResizePolicy{
		ResourceName: name, RestartPolicy: corev1.RestartContainer,
	})
}

// WithInitSizes returns pod with the resources in sizes of its init containers that are no sidecars: pod itself where it has them, else a copy.
func WithInitSizes(pod *corev1.Pod, sizes *Sizes) *corev1.Pod {
	var differ []Container
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		to := SizeOf(&pod.Spec, c)
		if size, ok := sizes.Of(c.Name); ok && size != to && !containers.IsSidecar(c) {
			differ = append(differ, Container{Name: c.Name, From: size, To: to})
		}
	}
	if len(differ) == 0 {
		return pod
	}
	return withSizes(pod, differ)
}

// withSizes returns a copy of a pod whose containers have the resources that they come from. Limits that a container takes from
// its pod stay out of its own.
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
			delete(c.Resources.Limits, name)
			if _, ok := own.Requests[name]; !ok {
				delete(c.Resources.Requests, name)
			}
		}
	}
	return &p
}
