// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// specs returns all containers of the pod.
func (s scene) specs() (all []*corev1.Container) {
	for i := range s.Pod.Spec.InitContainers {
		all = append(all, &s.Pod.Spec.InitContainers[i])
	}
	for i := range s.Pod.Spec.Containers {
		all = append(all, &s.Pod.Spec.Containers[i])
	}
	for i := range s.Pod.Spec.EphemeralContainers {
		all = append(all, (*corev1.Container)(&s.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// spec returns the container with a name, or nil.
func (s scene) spec(name string) *corev1.Container {
	for _, c := range s.specs() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// hasNoGrace reports whether the pod has a grace period of zero in its spec and none from a deletion.
func (s scene) hasNoGrace() bool {
	seconds := s.Pod.Spec.TerminationGracePeriodSeconds
	return s.Pod.DeletionGracePeriodSeconds == nil && seconds != nil && *seconds == 0
}

// last returns the last instance of a container.
func (s scene) last(name string) (last *cri.Container) {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; c.Name == name {
			last = c
		}
	}
	return last
}

// newest returns the last instance of a container in the current restart-all generation.
func (s scene) newest(name string) (last *cri.Container) {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; c.Name == name && generationOf(*c) == s.generation() {
			last = c
		}
	}
	return last
}

// createdLate returns the IDs of containers that were created while another instance runs.
func (s scene) createdLate() (late []string) {
	for _, c := range s.Observed.Containers {
		if c.State == cri.ContainerCreated && slices.ContainsFunc(s.Observed.Containers, func(o cri.Container) bool {
			return o.Name == c.Name && o.State == cri.ContainerRunning
		}) {
			late = append(late, c.ID)
		}
	}
	return late
}

// withoutCreatedLate returns the scene without the containers that createdLate returns.
func (s scene) withoutCreatedLate() scene {
	late := s.createdLate()
	s.Observed.Containers = slices.DeleteFunc(slices.Clone(s.Observed.Containers), func(c cri.Container) bool { return slices.Contains(late, c.ID) })
	return s
}

// initial returns the init container with a name, or nil.
func (s scene) initial(name string) *corev1.Container {
	for i := range s.Pod.Spec.InitContainers {
		if c := &s.Pod.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	return nil
}

func (s scene) hasCreated() bool {
	return slices.ContainsFunc(s.Observed.Containers, func(c cri.Container) bool { return c.State == cri.ContainerCreated })
}

// hasRun reports whether any container ever ran.
func (s scene) hasRun() bool {
	return slices.ContainsFunc(s.Observed.Containers, func(c cri.Container) bool { return c.State != cri.ContainerCreated })
}

// ranInGeneration reports whether any container ran since the last restart of all containers.
func (s scene) ranInGeneration() bool {
	return !s.restartsAll() && slices.ContainsFunc(s.Observed.Containers, func(c cri.Container) bool {
		return c.State != cri.ContainerCreated && generationOf(c) == s.generation()
	})
}

// formerTarget returns the target of an ephemeral container to start, if the target is from a previous restart-all
// generation.
func (s scene) formerTarget() *cri.Container {
	for _, e := range s.Pod.Spec.EphemeralContainers {
		target := s.last(e.TargetContainerName)
		if last := s.last(e.Name); target != nil && (last == nil || last.State == cri.ContainerCreated) &&
			(generationOf(*target) < s.generation() || s.restartsAll()) {
			return target
		}
	}
	return nil
}

// inUnknownState returns the containers in unknown state.
func (s scene) inUnknownState() (list []cri.Container) {
	for _, c := range s.Observed.Containers {
		if c.State == cri.ContainerUnknown {
			list = append(list, c)
		}
	}
	return list
}

// mayRun reports whether a container is running or may be running.
func mayRun(c cri.Container) bool {
	return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
}

// restartsAll reports whether the exit of a container causes a restart of all containers.
func (s scene) restartsAll() bool {
	return slices.ContainsFunc(slices.Concat(s.Pod.Spec.InitContainers, s.Pod.Spec.Containers), func(c corev1.Container) bool {
		last := s.newest(c.Name)
		if last == nil || last.State != cri.ContainerExited {
			return false
		}
		rule, ok := podutil.FindMatchingContainerRestartRule(c, last.ExitCode)
		return ok && rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// notInSpec returns the running containers that are not in the spec.
func (s scene) notInSpec() (list []cri.Container) {
	for _, c := range s.Observed.Containers {
		if mayRun(c) && s.spec(c.Name) == nil {
			list = append(list, c)
		}
	}
	return list
}

// replacedInstances returns the running instances that have a newer instance.
func (s scene) replacedInstances() (list []cri.Container) {
	for _, c := range s.Observed.Containers {
		if mayRun(c) && s.spec(c.Name) != nil && s.last(c.Name).ID != c.ID {
			list = append(list, c)
		}
	}
	return list
}

// outsideNewestSandbox returns the running containers outside of the newest sandbox.
func (s scene) outsideNewestSandbox() (list []cri.Container) {
	n := len(s.Observed.Sandboxes)
	for _, c := range s.Observed.Containers {
		if n > 0 && mayRun(c) && c.SandboxID != s.Observed.Sandboxes[n-1].ID {
			list = append(list, c)
		}
	}
	return list
}

// hook reports whether a preStop hook runs before the container is stopped.
func (s scene) hook(c cri.Container) bool {
	spec := s.spec(c.Name)
	return c.State == cri.ContainerRunning && spec != nil && spec.Lifecycle != nil && !s.hasNoGrace()
}

// isCompleted reports whether every regular container has terminated and is not restarted.
func (s scene) isCompleted() bool {
	return s.Pod.DeletionTimestamp == nil && !s.restartsAll() && !slices.ContainsFunc(s.Pod.Spec.Containers, func(c corev1.Container) bool {
		last := s.newest(c.Name)
		return last == nil || last.State != cri.ContainerExited || podview.ShouldRestart(&s.Pod.Spec, &c, last.ExitCode)
	})
}

// generationOf returns the restart-all generation in which a container was created: the number of earlier restarts of all
// containers.
func generationOf(c cri.Container) int {
	n, _ := strconv.Atoi(c.Annotations[podview.AnnotationGeneration])
	return n
}

// generation returns the current restart-all generation.
func (s scene) generation() (n int) {
	for _, c := range s.Observed.Containers {
		n = max(n, generationOf(c))
	}
	return n
}

func (s scene) ephemeral(name string) bool {
	return slices.ContainsFunc(s.Pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == name })
}
