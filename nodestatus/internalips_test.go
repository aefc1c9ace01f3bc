// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodestatus"
)

func TestInternalIPsSkipsOtherAddresses(t *testing.T) {
	node := &corev1.Node{}
	require.Empty(t, nodestatus.InternalIPs(node))
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: corev1.NodeHostName, Address: "n1"},
		{Type: corev1.NodeInternalIP, Address: "fd00::1"},
	}
	require.Equal(t, []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, nodestatus.InternalIPs(node))
}
