// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certrequest_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/certrequest"
)

// The template of a serving certificate has the names and addresses of the node.
func TestServingTemplate(t *testing.T) {
	for name, test := range map[string]struct {
		addresses []corev1.NodeAddress
		names     []string
		ips       string // empty: no request
	}{
		"none":           {},
		"host name only": {addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}}, names: []string{"n1"}},
		"address and name": {
			[]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"}},
			[]string{"n1"},
			"[10.0.0.1]",
		},
		"IP address as host name": {[]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "10.0.0.1"}}, nil, "[10.0.0.1]"},
		"addresses sorted as text, without duplicates": {[]corev1.NodeAddress{
			{Type: corev1.NodeExternalIP, Address: "9.0.0.1"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
			{Type: corev1.NodeInternalIP, Address: "fd00::1"},
			{Type: corev1.NodeInternalIP, Address: "::ffff:10.0.0.1"},
			{Type: corev1.NodeInternalIP, Address: "010.0.00.1"},
			{Type: corev1.NodeInternalDNS, Address: "b"},
			{Type: corev1.NodeExternalDNS, Address: "a"},
			{Type: corev1.NodeInternalDNS, Address: "a"},
		}, []string{"a", "b"}, "[10.0.0.1 9.0.0.1 fd00::1]"},
		"IP address as DNS name": {
			[]corev1.NodeAddress{{Type: corev1.NodeExternalDNS, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"}},
			[]string{"10.0.0.1"},
			"[10.0.0.2]",
		},
		"invalid addresses": {addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0.256"},
			{Type: corev1.NodeInternalIP, Address: "fe80::1%eth0"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0"},
			{Type: corev1.NodeInternalIP},
			{Type: corev1.NodeHostName},
			{Type: "Other", Address: "10.0.0.1"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			template, ok := certrequest.ServingTemplate("n1", test.addresses)
			require.Equal(t, test.ips != "", ok)
			assert.Equal(t, "system:node:n1", template.CommonName)
			assert.Equal(t, []string{"system:nodes"}, template.Organization)
			assert.ElementsMatch(t, test.names, template.DNSNames)
			assert.True(t, slices.IsSorted(template.DNSNames))
			if ok {
				assert.Equal(t, test.ips, fmt.Sprint(template.IPs))
			}
		})
	}
}

// A certificate may have more names than the template, but not fewer.
func TestMissingNamesFirstDifference(t *testing.T) {
	wanted, ok := certrequest.ServingTemplate("n1", []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "n1"},
	})
	require.True(t, ok)
	leaf := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "system:node:n1", Organization: []string{"more", "system:nodes"}},
		DNSNames: []string{"more", "n1"}, IPAddresses: []net.IP{net.ParseIP("fd00::1"), net.ParseIP("10.0.0.1")},
	}
	assert.Empty(t, wanted.Missing(leaf))
	for want, change := range map[string]func(*x509.Certificate){
		`common name "system:node:n1", not "admin"`: func(c *x509.Certificate) { c.Subject.CommonName = "admin" },
		`organization "system:nodes"`:               func(c *x509.Certificate) { c.Subject.Organization = []string{"more"} },
		`DNS name "n1"`:                             func(c *x509.Certificate) { c.DNSNames = nil },
		`IP address 10.0.0.1`:                       func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("10.0.0.2")} },
	} {
		less := *leaf
		change(&less)
		assert.Equal(t, want, wanted.Missing(&less))
	}
}
