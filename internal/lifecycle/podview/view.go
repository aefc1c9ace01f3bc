// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// View is what the runtime has of a pod, beside the pod's spec. Make one with [New].
type View struct {
	Pod      *corev1.Pod
	Observed cri.Pod
	// Generation is the restart-all generation that counts: container instances of an earlier one count for nothing but the
	// restart count and the last state. Zero: there was no restart of all containers.
	Generation int
	// RestartsAll reports that a container has asked for that generation, and that no instance of it is there yet.
	RestartsAll bool
}

// New returns the view of a pod.
func New(pod *corev1.Pod, observed cri.Pod) View {
	v := View{Pod: pod, Observed: observed}
	v.Generation, v.RestartsAll = generation(pod, &v.Observed)
	return v
}

// Newest returns the newest instance of a container that counts, in whatever sandbox, or nil.
func (v *View) Newest(name string) *cri.Container {
	last := v.Observed.NewestContainer(name)
	if last == nil || v.Generation > 0 && GenerationOf(last) < v.Generation {
		return nil
	}
	return last
}

// InSandbox returns the newest instance of a container that counts, where it is in a sandbox, or nil.
func (v *View) InSandbox(name, sandboxID string) *cri.Container {
	if last := v.Newest(name); last != nil && last.SandboxID == sandboxID {
		return last
	}
	return nil
}

// Initialized reports whether a regular container was created in a sandbox, so that the init containers are through.
func (v *View) Initialized(sandboxID string) bool {
	for i := range v.Pod.Spec.Containers {
		if v.InSandbox(v.Pod.Spec.Containers[i].Name, sandboxID) != nil {
			return true
		}
	}
	return false
}

// Running reports whether a container of a pod runs.
func Running(p cri.Pod) bool {
	return slices.ContainsFunc(p.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// Terminated reports whether nothing of a pod runs or may run. Source: TerminatePod in
// pkg/kubelet/status/status_manager.go.
func Terminated(p cri.Pod) bool {
	return !slices.ContainsFunc(p.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady }) &&
		!slices.ContainsFunc(p.Containers, func(c cri.Container) bool {
			return c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown
		})
}
