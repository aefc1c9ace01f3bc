// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podip"
)

// addresses are the addresses of a pod.
type addresses struct {
	node      *Node
	published []corev1.PodIP // in the status of the pod when the actions began
}

// of returns the addresses of pod, whose sandbox has sandboxIPs: those of the node if the pod is on its network.
func (a *addresses) of(pod *corev1.Pod, sandboxIPs []string) []string {
	if !pod.Spec.HostNetwork {
		return sandboxIPs
	}
	var ips []string
	for _, ip := range podip.Addresses(true, sandboxIPs, a.published, a.node.Spec.NodeIPs()) {
		ips = append(ips, ip.String())
	}
	return ips
}
