// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resize

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
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
	Pod      *corev1.Pod
	Observed cri.Pod
	Spec     podspec.Options
	// Told is what the runtime was told last of a container that runs, by its ID. Of one that is not in it, what it has
	// is read from its annotation and from what the runtime says.
	Told map[string]cgroups.Size
	// Sized is what the pod as a whole has, as far as it is not the sum of its containers. Nil: what it asks for.
	Sized *cgroups.Size
	// Fixed says that the runtime cannot change a container that runs.
	Fixed bool
}

// Decision is what a change of the resources in the spec of a pod comes to.
type Decision struct {
	// Pod is the pod with the resources that its containers may have: those of the spec or, as long as these are not to
	// be had, those that they have.
	Pod *corev1.Pod
	// Containers are those that run, or were made and are to run, with other resources than these.
	Containers []Container
	// Changed says that a container was made when the pod had other resources. What was summed up over the containers then
	// may be out of date, whether or not they have what they are to have now.
	Changed bool
	// Before is the pod with the resources that its containers have. Nil: they have what the spec asks for.
	Before *corev1.Pod
	// Reason and Message say why the resources of the spec are not to be had: Infeasible or Deferred. Empty: they are.
	Reason, Message string

	// What a status has of a resize that goes on, and [Decide] does not know.
	Generation int64  // of the spec that asked for it
	Error      string // why it failed the last time
}

// Container is one that is to have other resources than it has.
type Container struct {
	ID, Name string
	From, To cgroups.Size
	Restart  bool // its policy is to start it anew with them
}

// Decide says which containers of a pod are to have other resources, and whether they may, but for the room that the node
// has for them: see [Decision.Resizes]. The same state gives the same decision. Source: computePodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, pkg/kubelet/allocation.
func Decide(s State) Decision {
	z := Decision{Pod: s.Pod}
	var differ []Container // whether they run or not
	for c := range containers.NotEphemeral(&s.Pod.Spec) {
		have := s.Observed.NewestContainer(c.Name)
		if have == nil || have.State != cri.ContainerRunning && containers.IsInit(&s.Pod.Spec, c) && !containers.IsSidecar(c) {
			continue // an init container that does not run has had its turn
		}
		to := SizeOf(&s.Pod.Spec, c)
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
	}
	whole := s.Pod.Spec.Resources != nil && s.Sized != nil && *s.Sized != SizeOfPod(s.Pod)
	if len(differ) == 0 && !whole {
		return z
	}
	asBefore := withSizes(s.Pod, differ)
	if whole {
		c := WithSize(&corev1.Container{Resources: *s.Pod.Spec.Resources}, *s.Sized)
		asBefore.Spec.Resources = &c.Resources
	}
	if reason, message := s.refuse(asBefore, differ); reason != "" {
		return Decision{Pod: asBefore, Before: asBefore, Reason: reason, Message: message}
	}
	z.Before = asBefore
	return z
}

// Resizes reports whether containers, or the pod as a whole, are to get other resources than they have: whether to ask if
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

func (d *Decision) pending(reason, message string) Decision {
	return Decision{Pod: d.Before, Before: d.Before, Reason: reason, Message: message}
}

// refuse returns why the containers may not have what the spec asks for, on this node.
func (s *State) refuse(asBefore *corev1.Pod, differ []Container) (reason, message string) {
	if s.Fixed {
		return corev1.PodReasonInfeasible, messageResizeUnsupported
	}
	if qos.Class(s.Pod) != qos.Class(asBefore) {
		return corev1.PodReasonInfeasible, messageResizeClass
	}
	for _, r := range differ {
		// How much a container may swap follows from its request, and cannot be changed while it runs.
		if r.From.MemoryRequest != r.To.MemoryRequest &&
			!restartsFor(containers.Named(&s.Pod.Spec, r.Name), corev1.ResourceMemory) &&
			(s.swaps(s.Pod, r.Name) || s.swaps(asBefore, r.Name)) {
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
func restarts(c *corev1.Container, from, to cgroups.Size) bool {
	return (from.CPURequest != to.CPURequest || from.CPULimit != to.CPULimit) && restartsFor(c, corev1.ResourceCPU) ||
		(from.MemoryRequest != to.MemoryRequest || from.MemoryLimit != to.MemoryLimit) && restartsFor(c, corev1.ResourceMemory)
}

func restartsFor(c *corev1.Container, name corev1.ResourceName) bool {
	return slices.Contains(c.ResizePolicy, corev1.ContainerResizePolicy{
		ResourceName: name, RestartPolicy: corev1.RestartContainer,
	})
}

// withSizes returns a copy of a pod whose containers have the resources that they come from.
func withSizes(pod *corev1.Pod, resizes []Container) *corev1.Pod {
	p := *pod
	p.Spec.Containers, p.Spec.InitContainers = slices.Clone(p.Spec.Containers), slices.Clone(p.Spec.InitContainers)
	for _, r := range resizes {
		c := containers.Named(&p.Spec, r.Name)
		*c = WithSize(c, r.From)
	}
	return &p
}
