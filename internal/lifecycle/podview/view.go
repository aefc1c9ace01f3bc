// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// View combines the spec of a pod with its containers and sandboxes in the runtime. Use [New] to create it.
type View struct {
	Pod      *corev1.Pod
	Observed cri.Pod
	// Generation is the current restart-all generation. Container instances of earlier generations count only for the restart
	// count and the last state. Zero: all containers were never restarted together.
	Generation int
	// RestartsAll is true if a container has requested this generation and no instance of it exists yet.
	RestartsAll bool
}

// New returns a View of pod. observed contains the containers and sandboxes that the runtime has for pod.
func New(pod *corev1.Pod, observed cri.Pod) View {
	v := View{Pod: pod, Observed: observed}
	v.Generation, v.RestartsAll = currentGeneration(pod, &v.Observed)
	return v
}

// Newest returns the newest instance of the container with this name, in any sandbox, or nil. Instances created before the
// last restart of all containers do not count.
func (v *View) Newest(name string) *cri.Container {
	last := v.Observed.NewestContainer(name)
	if last == nil || v.Generation > 0 && GenerationOf(last) < v.Generation {
		return nil
	}
	return last
}

// NewestInSandbox returns the newest instance of the container with this name. It returns nil if that instance is not in the
// sandbox with this ID.
func (v *View) NewestInSandbox(name, sandboxID string) *cri.Container {
	if last := v.Newest(name); last != nil && last.SandboxID == sandboxID {
		return last
	}
	return nil
}

// HasInitialized reports whether all init containers have completed in the sandbox with this ID. It returns true if the
// sandbox has a regular container, because regular containers are created after the init containers.
func (v *View) HasInitialized(sandboxID string) bool {
	for i := range v.Pod.Spec.Containers {
		if v.NewestInSandbox(v.Pod.Spec.Containers[i].Name, sandboxID) != nil {
			return true
		}
	}
	return false
}

// IsRunning reports whether a container of pod is running.
func IsRunning(pod cri.Pod) bool {
	return slices.ContainsFunc(pod.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// IsTerminated reports whether pod has no ready sandbox, no running container and no container in unknown state. Source:
// TerminatePod in pkg/kubelet/status/status_manager.go.
func IsTerminated(pod cri.Pod) bool {
	return !slices.ContainsFunc(pod.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady }) &&
		!slices.ContainsFunc(pod.Containers, func(c cri.Container) bool {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
		})
}
