// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// InternalIPs returns the addresses of type InternalIP from the status of node, in the same order.
func InternalIPs(node *corev1.Node) (ips []netip.Addr) {
	for _, address := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(address.Address); err == nil && address.Type == corev1.NodeInternalIP {
			ips = append(ips, ip)
		}
	}
	return ips
}
