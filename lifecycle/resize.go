// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/qos"
)

// The messages of a resize that cannot be, as the kubelet's users and those of the API server know them.
const (
	messageResizeUnsupported = "In-place pod resize is not supported on this node"
	messageResizeSwap        = "In-place resize of containers with swap is not supported."
	messageResizeClass       = "Pod QOS Class may not change as a result of resizing"
)

// ResizeState is what [PlanResize] decides by.
type ResizeState struct {
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
	// Admit says, with an error, why the node has no room for the pod as it is to be. Nil: it always has.
	Admit func(pod *corev1.Pod) error
}

// Resizing is what a change of the resources in the spec of a pod comes to.
type Resizing struct {
	// Pod is the pod with the resources that its containers may have: those of the spec or, as long as these are not to
	// be had, those that they have.
	Pod *corev1.Pod
	// Containers are those that run, or were made and are to run, with other resources than these.
	Containers []Resize
	// Changed says that a container was made when the pod had other resources. What was summed up over the containers then
	// may be out of date, whether or not they have what they are to have now.
	Changed bool
	// Reason and Message say why the resources of the spec are not to be had: Infeasible or Deferred. Empty: they are.
	Reason, Message string

	// What [Status] tells of a resize that goes on, and [PlanResize] does not know.
	Generation int64  // of the spec that asked for it
	Error      string // why it failed the last time
}

// Resize is a container that is to have other resources than it has.
type Resize struct {
	ID, Name string
	From, To cgroups.Size
	Restart  bool // its policy is to start it anew with them
}

// PlanResize decides which containers of a pod are to have other resources, and whether they may. The same state gives
// the same answer, as far as that of Admit is the same. Source: computePodResizeAction in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go, pkg/kubelet/allocation.
func PlanResize(s ResizeState) Resizing {
	z := Resizing{Pod: s.Pod}
	var differ []Resize // whether they run or not
	for c := range containersOf(&s.Pod.Spec) {
		life := newestContainer(s.Observed.Containers, c.Name, nil)
		if life == nil || life.State != cri.ContainerRunning && isInit(&s.Pod.Spec, c) && !sidecar(c) {
			continue // an init container that does not run has had its turn
		}
		to := sizeOf(&s.Pod.Spec, c)
		born, known := parseSize(life.Annotations[AnnotationResources])
		z.Changed = z.Changed || known && born != to
		from := s.inForce(c, life, to)
		if from == to {
			continue
		}
		r := Resize{ID: life.ID, Name: c.Name, From: from, To: to, Restart: restarts(c, from, to)}
		differ = append(differ, r)
		if life.State == cri.ContainerRunning || life.State == cri.ContainerCreated {
			z.Containers = append(z.Containers, r)
		}
	}
	whole := s.Pod.Spec.Resources != nil && s.Sized != nil && *s.Sized != sizeOfPod(s.Pod)
	if len(differ) == 0 && !whole {
		return z
	}
	asBefore := withSizes(s.Pod, differ)
	if whole {
		c := withSize(&corev1.Container{Resources: *s.Pod.Spec.Resources}, *s.Sized)
		asBefore.Spec.Resources = &c.Resources
	}
	if reason, message := s.refuse(asBefore, differ); reason != "" {
		return Resizing{Pod: asBefore, Reason: reason, Message: message}
	}
	return z
}

// refuse tells why the containers may not have what the spec asks for: not here, or not now.
func (s *ResizeState) refuse(asBefore *corev1.Pod, differ []Resize) (reason, message string) {
	if s.Fixed {
		return corev1.PodReasonInfeasible, messageResizeUnsupported
	}
	if qos.Class(s.Pod) != qos.Class(asBefore) {
		return corev1.PodReasonInfeasible, messageResizeClass
	}
	for _, r := range differ {
		// How much a container may swap follows from its request, and cannot be changed while it runs.
		if r.From.MemoryRequest != r.To.MemoryRequest &&
			!restartsFor(containerNamed(&s.Pod.Spec, r.Name), corev1.ResourceMemory) &&
			(s.swaps(s.Pod, r.Name) || s.swaps(asBefore, r.Name)) {
			return corev1.PodReasonInfeasible, messageResizeSwap
		}
	}
	if s.Admit != nil {
		if err := s.Admit(s.Pod); err != nil {
			return corev1.PodReasonDeferred, err.Error()
		}
	}
	return "", ""
}

func (s *ResizeState) swaps(pod *corev1.Pod, name string) bool {
	if s.Spec.Node == nil {
		return false
	}
	limit, _ := qos.SwapLimit(pod, containerNamed(&pod.Spec, name), *s.Spec.Node)
	return limit > 0
}

// restarts tells whether a container is to be started anew to have other resources.
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
func withSizes(pod *corev1.Pod, resizes []Resize) *corev1.Pod {
	p := *pod
	p.Spec.Containers, p.Spec.InitContainers = slices.Clone(p.Spec.Containers), slices.Clone(p.Spec.InitContainers)
	for _, r := range resizes {
		c := containerNamed(&p.Spec, r.Name)
		*c = withSize(c, r.From)
	}
	return &p
}

// planResize gives a running container other resources, if it is to have others. It tells whether it runs on; if not, it
// is to be started anew.
func (a *Actions) planResize(s *State, live *cri.Container) (kept bool) {
	r := s.resizeOf(live)
	if r == nil {
		return true
	}
	if r.Restart {
		a.kill(s, live, "its resize requires a restart")
		return false
	}
	a.Resize = append(a.Resize, *r)
	return true
}

// resizeOf returns what is to become of the resources of a container, or nil.
func (s *State) resizeOf(c *cri.Container) *Resize {
	for i := range s.Resizes {
		if s.Resizes[i].ID == c.ID {
			return &s.Resizes[i]
		}
	}
	return nil
}
