// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// HideReplacement returns the observation without the replacement of containers that an agent is stopping, or removing unstarted, in order to
// start their successors: each is as it was before, until its successor runs or has exited. A status of this observation reports neither its exit nor
// the wait for its successor. The kubelet computes a status only when a sync begins, and stops and starts the container in one sync. Source:
// SyncPod in pkg/kubelet/kubelet.go.
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

// HideLateSuccessors returns the observation without containers that were created too late: the call that was to create the successor of a stopped
// container failed, the stopped container was published as terminated, its restart policy leaves it so, and then the call took effect. Such a
// container is not started, as no container leaves that state. The kubelet starts it, and publishes no status of the pod from then on.
func HideLateSuccessors(pod *corev1.Pod, observed cri.Pod, published *corev1.PodStatus) cri.Pod {
	late := func(c cri.Container) bool {
		return c.State == cri.ContainerCreated && slices.ContainsFunc(observed.Containers, func(o cri.Container) bool {
			return o.Name == c.Name && o.SandboxID == c.SandboxID && o.Attempt < c.Attempt && GenerationOf(&o) == GenerationOf(&c) &&
				o.State == cri.ContainerExited && endsFor(pod, &o, published)
		})
	}
	if slices.ContainsFunc(observed.Containers, late) {
		observed.Containers = slices.DeleteFunc(slices.Clone(observed.Containers), late)
	}
	return observed
}

// endsFor reports whether a regular container that has exited is published as terminated and is not to be restarted.
func endsFor(pod *corev1.Pod, c *cri.Container, published *corev1.PodStatus) bool {
	isTerminated := func(st corev1.ContainerStatus) bool {
		return st.Name == c.Name && st.State.Terminated != nil && strings.HasSuffix(st.ContainerID, c.ID)
	}
	for i := range pod.Spec.Containers {
		if spec := &pod.Spec.Containers[i]; spec.Name == c.Name {
			return !ShouldRestart(&pod.Spec, spec, c.ExitCode) && slices.ContainsFunc(published.ContainerStatuses, isTerminated)
		}
	}
	return false
}
