// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Why a pod needs a new sandbox, as the condition PodReadyToStartContainers has it. Source: pkg/kubelet/types/constants.go.
const (
	messageNoSandbox    = "no pod sandbox exists"
	messageSeveralReady = "multiple pod sandboxes are ready and need to be reconciled"
	messageNotReady     = "pod sandbox is not ready"
	messageNetworkMode  = "network namespace mode changed and sandbox needs to be recreated"
	messageNoAddress    = "pod sandbox has no IP address"
)

// SandboxChange is what has to happen to the sandbox of a pod.
type SandboxChange struct {
	Create  bool
	Attempt uint32 // of the sandbox to create, or of the one in use
	ID      string // of the one in use
	Why     string // a new one is needed; empty where the one in use will do
}

// SandboxChange returns whether the pod needs a new sandbox. Source: pkg/kubelet/kuberuntime/util/util.go.
func (v *View) SandboxChange() SandboxChange {
	newest := v.Observed.NewestSandbox()
	if newest == nil {
		return SandboxChange{Create: true, Why: messageNoSandbox}
	}
	ready := 0
	for i := range v.Observed.Sandboxes {
		if v.Observed.Sandboxes[i].State == cri.SandboxReady {
			ready++
		}
	}
	again := func(why string) SandboxChange {
		return SandboxChange{Create: true, Attempt: newest.Attempt + 1, Why: why}
	}
	switch {
	case ready > 1:
		return again(messageSeveralReady)
	case newest.State != cri.SandboxReady:
		return again(messageNotReady)
	case !askedFor(newest, Network(v.Pod)):
		return again(messageNetworkMode)
	case newest.Namespaces.Network == cri.NamespacePod && len(newest.IPs) == 0:
		return again(messageNoAddress)
	}
	return SandboxChange{Attempt: newest.Attempt, ID: newest.ID}
}

// AnnotationNetwork carries the mode of network namespace that a sandbox was asked for, since a runtime such as
// package process gives every pod the host's network whatever it asks for.
const AnnotationNetwork = "nodeagent/network"

// Network returns the mode of network namespace that a pod wants.
func Network(pod *corev1.Pod) cri.NamespaceMode {
	if pod.Spec.HostNetwork {
		return cri.NamespaceNode
	}
	return cri.NamespacePod
}

// askedFor reports whether a sandbox was asked for a mode, or else has it. It allocates nothing.
func askedFor(s *cri.Sandbox, mode cri.NamespaceMode) bool {
	if asked, ok := s.Annotations[AnnotationNetwork]; ok {
		return asked == mode.String()
	}
	return s.Namespaces.Network == mode
}
