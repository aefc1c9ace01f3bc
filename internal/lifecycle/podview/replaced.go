// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// HideReplacement returns observed with the previous state, from replaced, of each container that the agent is replacing.
// The pod status then shows neither the exit of the old container nor the wait for the new one. A container whose
// replacement has started is not changed. The kubelet replaces a container within one sync. Source: SyncPod in
// pkg/kubelet/kubelet.go.
func HideReplacement(observed cri.Pod, replaced []cri.Container) cri.Pod {
	if len(replaced) == 0 {
		return observed
	}
	list := slices.Clone(observed.Containers)
	for _, before := range replaced {
		successor := func(c cri.Container) bool {
			anew := before.State == cri.ContainerCreated && c.Attempt == before.Attempt && c.ID != before.ID
			return c.Name == before.Name && (c.Attempt > before.Attempt || anew)
		}
		if slices.ContainsFunc(list, func(c cri.Container) bool { return successor(c) && c.State != cri.ContainerCreated }) {
			continue
		}
		list = slices.DeleteFunc(list, func(c cri.Container) bool { return c.ID == before.ID || successor(c) })
		list = append(list, before)
	}
	observed.Containers = list
	return observed
}

// HideLateSuccessors returns observed without each created container that would replace a container with a final exit. An
// exit is final if the pod status in published reports it and the restart policy forbids a restart. The runtime can create
// such a container late, after its CreateContainer call has failed. The agent does not start it, because the terminated
// container must keep its status. The kubelet starts it, and then no longer updates the status of the pod.
func HideLateSuccessors(pod *corev1.Pod, observed cri.Pod, published *corev1.PodStatus) cri.Pod {
	late := func(c cri.Container) bool {
		return c.State == cri.ContainerCreated && slices.ContainsFunc(observed.Containers, func(o cri.Container) bool {
			return o.Name == c.Name && o.SandboxID == c.SandboxID && o.Attempt < c.Attempt && GenerationOf(&o) == GenerationOf(&c) &&
				o.State == cri.ContainerExited && isTerminatedForGood(pod, &o, published)
		})
	}
	if slices.ContainsFunc(observed.Containers, late) {
		observed.Containers = slices.DeleteFunc(slices.Clone(observed.Containers), late)
	}
	return observed
}

// isTerminatedForGood reports whether the published status lists this exited container as terminated and the agent will not
// restart it, such as an init container that has completed in its sandbox. It returns false for sidecars.
func isTerminatedForGood(pod *corev1.Pod, container *cri.Container, published *corev1.PodStatus) bool {
	isTerminated := func(st corev1.ContainerStatus) bool {
		return st.Name == container.Name && st.State.Terminated != nil && strings.HasSuffix(st.ContainerID, container.ID)
	}
	for i := range pod.Spec.Containers {
		if spec := &pod.Spec.Containers[i]; spec.Name == container.Name {
			return !ShouldRestart(&pod.Spec, spec, container.ExitCode) && slices.ContainsFunc(published.ContainerStatuses, isTerminated)
		}
	}
	for i := range pod.Spec.InitContainers {
		if spec := &pod.Spec.InitContainers[i]; spec.Name == container.Name {
			sidecar := spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
			completed := container.ExitCode == 0 && container.Reason != "OOMKilled" // as package plan decides
			return !sidecar && completed && slices.ContainsFunc(published.InitContainerStatuses, isTerminated)
		}
	}
	return false
}
