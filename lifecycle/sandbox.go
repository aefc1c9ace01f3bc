// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// sandboxChange is what has to happen to the sandbox of a pod.
type sandboxChange struct {
	create  bool
	attempt uint32 // of the sandbox to create, or of the one in use
	id      string // of the one in use
	why     string
}

// sandboxChanged decides whether a pod needs a new sandbox. Source: pkg/kubelet/kuberuntime/util/util.go.
func sandboxChanged(pod *corev1.Pod, sandboxes []cri.Sandbox) sandboxChange {
	newest := newestSandbox(sandboxes)
	if newest == nil {
		return sandboxChange{create: true, why: "no sandbox"}
	}
	ready := 0
	for i := range sandboxes {
		if sandboxes[i].State == cri.SandboxReady {
			ready++
		}
	}
	again := func(why string) sandboxChange {
		return sandboxChange{create: true, attempt: newest.Attempt + 1, why: why}
	}
	switch {
	case ready > 1:
		return again("several sandboxes are ready")
	case newest.State != cri.SandboxReady:
		return again("the sandbox is not ready")
	case !askedFor(newest, network(pod)):
		return again("the network namespace of the sandbox is of mode " + networkAsked(newest))
	case newest.Namespaces.Network == cri.NamespacePod && len(newest.IPs) == 0:
		return again("the sandbox has no address")
	}
	return sandboxChange{attempt: newest.Attempt, id: newest.ID}
}

// AnnotationNetwork carries the mode of network namespace that a sandbox was asked for, since a runtime such as
// package process gives every pod the host's network whatever it asks for.
const AnnotationNetwork = "nodeagent/network"

// network returns the mode of network namespace that a pod wants.
func network(pod *corev1.Pod) cri.NamespaceMode {
	if pod.Spec.HostNetwork {
		return cri.NamespaceNode
	}
	return cri.NamespacePod
}

// askedFor tells whether a sandbox was asked for a mode, or else has it. It allocates nothing.
func askedFor(s *cri.Sandbox, mode cri.NamespaceMode) bool {
	if asked, ok := s.Annotations[AnnotationNetwork]; ok {
		return asked == mode.String()
	}
	return s.Namespaces.Network == mode
}

// networkAsked returns the mode that a sandbox was asked for, or else the one that it has.
func networkAsked(s *cri.Sandbox) string {
	if asked, ok := s.Annotations[AnnotationNetwork]; ok {
		return asked
	}
	return s.Namespaces.Network.String()
}

// newestSandbox returns the sandbox with the highest attempt, the later one of equals, or nil.
func newestSandbox(sandboxes []cri.Sandbox) *cri.Sandbox {
	var newest *cri.Sandbox
	for i := range sandboxes {
		s := &sandboxes[i]
		if newest == nil || s.Attempt > newest.Attempt ||
			(s.Attempt == newest.Attempt && s.CreatedAt.After(newest.CreatedAt)) {
			newest = s
		}
	}
	return newest
}

// newestContainer returns the newest life of the container with a name that satisfies keep (nil: any), or nil.
func newestContainer(containers []cri.Container, name string, keep func(*cri.Container) bool) *cri.Container {
	var newest *cri.Container
	for i := range containers {
		c := &containers[i]
		if c.Name != name || (keep != nil && !keep(c)) {
			continue
		}
		if newest == nil || c.Attempt > newest.Attempt ||
			(c.Attempt == newest.Attempt && c.CreatedAt.After(newest.CreatedAt)) {
			newest = c
		}
	}
	return newest
}

func exited(c *cri.Container) bool { return c.State == cri.ContainerExited }
