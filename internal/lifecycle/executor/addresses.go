// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podip"
)

// podAddresses computes the IP addresses of one pod, for its containers and hooks.
type podAddresses struct {
	node      *Node
	published []corev1.PodIP // pod IPs in the pod status when the sync started
}

// podIPs returns the IP addresses of pod. These are the addresses of the node if the pod uses the host network, and
// sandboxIPs otherwise.
func (a *podAddresses) podIPs(pod *corev1.Pod, sandboxIPs []string) []string {
	if !pod.Spec.HostNetwork {
		return sandboxIPs
	}
	var ips []string
	for _, ip := range podip.Addresses(true, sandboxIPs, a.published, a.node.Spec.NodeIPs()) {
		ips = append(ips, ip.String())
	}
	return ips
}
