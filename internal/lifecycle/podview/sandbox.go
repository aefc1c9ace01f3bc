// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// Reasons for a new sandbox, as in the condition PodReadyToStartContainers. Source: pkg/kubelet/types/constants.go.
const (
	messageNoSandbox    = "no pod sandbox exists"
	messageSeveralReady = "multiple pod sandboxes are ready and need to be reconciled"
	messageNotReady     = "pod sandbox is not ready"
	messageNetworkMode  = "network namespace mode changed and sandbox needs to be recreated"
	messageNoAddress    = "pod sandbox has no IP address"
)

// SandboxChange is the decision whether a pod needs a new sandbox, for example because its sandbox is not ready.
type SandboxChange struct {
	Create  bool
	Attempt uint32 // of the sandbox to create, or of the sandbox in use
	ID      string // of the sandbox in use
	Reason  string // why a new sandbox is needed; empty if it is not
}

// SandboxChange reports in its field Create whether the pod needs a new sandbox, and in Reason why. Otherwise the result
// contains the ID of the newest sandbox, which the pod continues to use. Source: pkg/kubelet/kuberuntime/util/util.go.
func (v *View) SandboxChange() SandboxChange {
	newest := v.Observed.NewestSandbox()
	if newest == nil {
		return SandboxChange{Create: true, Reason: messageNoSandbox}
	}
	ready := 0
	for i := range v.Observed.Sandboxes {
		if v.Observed.Sandboxes[i].State == cri.SandboxReady {
			ready++
		}
	}
	recreate := func(reason string) SandboxChange {
		return SandboxChange{Create: true, Attempt: newest.Attempt + 1, Reason: reason}
	}
	switch {
	case ready > 1:
		return recreate(messageSeveralReady)
	case newest.State != cri.SandboxReady:
		return recreate(messageNotReady)
	case !hasNetworkMode(newest, NetworkModeOf(v.Pod)):
		return recreate(messageNetworkMode)
	case newest.Namespaces.Network == cri.NamespacePod && len(newest.IPs) == 0:
		return recreate(messageNoAddress)
	}
	return SandboxChange{Attempt: newest.Attempt, ID: newest.ID}
}

// AnnotationNetwork is the annotation with the network namespace mode that a sandbox was created with. Some runtimes, such as
// package process, use the host network for every pod.
const AnnotationNetwork = "nodeagent/network"

// NetworkModeOf returns the network namespace mode that the spec of pod requests.
func NetworkModeOf(pod *corev1.Pod) cri.NamespaceMode {
	if pod.Spec.HostNetwork {
		return cri.NamespaceNode
	}
	return cri.NamespacePod
}

// hasNetworkMode reports whether the sandbox was created with this network mode, according to its annotation or the runtime.
func hasNetworkMode(sandbox *cri.Sandbox, mode cri.NamespaceMode) bool {
	if asked, ok := sandbox.Annotations[AnnotationNetwork]; ok {
		return asked == mode.String()
	}
	return sandbox.Namespaces.Network == mode
}
