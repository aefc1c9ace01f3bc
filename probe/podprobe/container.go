// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"iter"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/probe"
)

// listProbedContainers yields the containers of a pod that can have probes. These are first the regular containers, then the
// sidecars. Source: manager.AddPod in pkg/kubelet/prober/prober_manager.go.
func listProbedContainers(pod *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for i := range pod.Containers {
			if !yield(&pod.Containers[i]) {
				return
			}
		}
		for i := range pod.InitContainers {
			if c := &pod.InitContainers[i]; containers.IsSidecar(c) && !yield(c) {
				return
			}
		}
	}
}

// listProbes yields the probes in a container spec, each with its kind.
func listProbes(container *corev1.Container) iter.Seq2[probe.Kind, *corev1.Probe] {
	return func(yield func(probe.Kind, *corev1.Probe) bool) {
		for _, kind := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
			if p := getProbe(container, kind); p != nil && !yield(kind, p) {
				return
			}
		}
	}
}

// getProbe returns the probe of this kind in the container spec, or nil if the container has none.
func getProbe(container *corev1.Container, kind probe.Kind) *corev1.Probe {
	switch kind {
	case probe.Startup:
		return container.StartupProbe
	case probe.Readiness:
		return container.ReadinessProbe
	case probe.Liveness:
		return container.LivenessProbe
	}
	return nil
}

// kindName returns the name of the kind as in the API and in events: "startup", "readiness" or "liveness".
func kindName(kind probe.Kind) string { return strings.ToLower(kind.String()) }

// isSidecar reports whether the container is a sidecar of the pod, which is an init container with restartPolicy Always.
func isSidecar(pod *corev1.PodSpec, container *corev1.Container) bool {
	return containers.IsInit(pod, container) && containers.IsSidecar(container)
}

// findStatus returns the status of the container with this name. It returns nil if there is none, or if the container has no
// ID yet.
func findStatus(status *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{status.ContainerStatuses, status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name && list[i].ContainerID != "" {
				return &list[i]
			}
		}
	}
	return nil
}

// containerID returns the container ID in a status, without its prefix. For example, it returns ID for containerd://ID.
func containerID(status *corev1.ContainerStatus) string {
	if _, id, found := strings.Cut(status.ContainerID, "://"); found {
		return id
	}
	return status.ContainerID
}
