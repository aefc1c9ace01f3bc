// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podip_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podip"
)

// Parse accepts the addresses that the kubelet accepts, and rejects all others.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":           "10.0.0.1",
		"010.000.00000.001":  "10.0.0.1",
		"0.0.0.0":            "0.0.0.0",
		"::":                 "::",
		"fd00::0":            "fd00::",
		"fd00:0000::00a0":    "fd00::a0",
		"FD00::000000A":      "fd00::a",
		"::ffff:10.0.0.1":    "10.0.0.1",
		"::ffff:010.0.0.001": "10.0.0.1",
		"":                   "",
		"0":                  "",
		"10.0.0":             "",
		"10.0.0.256":         "",
		"10.0.0.1/24":        "",
		"10.0.0.1\n6.6.6.6":  "",
		"0x0a.0.0.1":         "",
		"fe80::1%eth0":       "",
		"fd00::12345":        "",
		" 10.0.0.1":          "",
		"example.com":        "",
	} {
		got, ok := podip.Parse(text)
		require.Equal(t, want != "", ok, "%q", text)
		if ok {
			assert.Equal(t, want, got.String(), "%q", text)
		}
	}
}

// The IP family of the first node address comes first. Families that a host-network pod lacks are filled from the previous
// status and the node.
func TestAddresses(t *testing.T) {
	addrs := func(texts ...string) []netip.Addr {
		var all []netip.Addr
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for name, test := range map[string]struct {
		onHost bool
		ips    []string
		before []corev1.PodIP
		node   []netip.Addr
		want   []netip.Addr
	}{
		"none":                         {},
		"first address of each family": {ips: []string{"fd00::2", "10.0.0.2", "10.0.0.3"}, want: addrs("10.0.0.2", "fd00::2")},
		"family of the node first":     {ips: []string{"10.0.0.2", "fd00::2"}, node: addrs("fd00::1"), want: addrs("fd00::2", "10.0.0.2")},
		"no address":                   {ips: []string{"x", "10.0.0.2"}, want: addrs("10.0.0.2")},
		"pod network, no address":      {node: addrs("10.0.0.1"), before: []corev1.PodIP{{IP: "10.0.0.2"}}},
		"host":                         {onHost: true, node: addrs("10.0.0.1", "fd00::1"), want: addrs("10.0.0.1", "fd00::1")},
		"host, node with one family":   {onHost: true, node: addrs("10.0.0.1", "10.0.0.2"), want: addrs("10.0.0.1")},
		"host, before":                 {onHost: true, before: []corev1.PodIP{{IP: "10.0.0.9"}}, node: addrs("10.0.0.1", "fd00::1"), want: addrs("10.0.0.9", "fd00::1")},
		"host, known":                  {onHost: true, ips: []string{"10.0.0.8"}, before: []corev1.PodIP{{IP: "10.0.0.9"}}, node: addrs("10.0.0.1"), want: addrs("10.0.0.8")},
	} {
		assert.Equal(t, test.want, podip.Addresses(test.onHost, test.ips, test.before, test.node), name)
	}
}
