// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodestatus"
)

// brief formats addresses in one line. Only addresses other than InternalIP have their type in it.
func brief(all []corev1.NodeAddress) (out string) {
	for _, a := range all {
		if a.Type != corev1.NodeInternalIP {
			out += string(a.Type) + "="
		}
		out += a.Address + " "
	}
	return out
}

func TestNodeAddressesFollowConfigurationAndHost(t *testing.T) {
	interfaces := ips("127.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1", "fe80::1")
	theirs := []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}}
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, test := range []struct {
		name     string
		config   nodestatus.Config
		host     nodestatus.Host
		current  []corev1.NodeAddress
		want     string
		provided string // value of the annotation
	}{
		{name: "node IP", config: nodestatus.Config{NodeIPs: ips("10.0.0.2")}, want: "10.0.0.2 Hostname=n1 "},
		{name: "node IP in IPv6 notation", config: nodestatus.Config{NodeIPs: ips("::ffff:10.0.0.2")}, want: "10.0.0.2 Hostname=n1 "},
		{name: "dual stack, in order", config: nodestatus.Config{NodeIPs: ips("10.0.0.1", "fd00::1")}, want: "10.0.0.1 fd00::1 Hostname=n1 "},
		{name: "dual stack, opposite order", config: nodestatus.Config{NodeIPs: ips("fd00::1", "10.0.0.1")}, want: "fd00::1 10.0.0.1 Hostname=n1 "},
		{name: "unspecified IPv4", config: nodestatus.Config{NodeIPs: ips("0.0.0.0")}, host: nodestatus.Host{Default: four}, want: "10.0.0.1 Hostname=n1 "},
		{
			name: "unspecified IPv6 prefers IPv6", config: nodestatus.Config{NodeIPs: ips("::")},
			host: nodestatus.Host{Named: ips("10.0.0.1", "fd00::1"), Default: four}, want: "fd00::1 Hostname=n1 ",
		},
		{
			name: "unspecified IPv6 falls back to IPv4", config: nodestatus.Config{NodeIPs: ips("::")},
			host: nodestatus.Host{Named: ips("10.0.0.1"), Default: six}, want: "10.0.0.1 Hostname=n1 ",
		},
		{
			name: "host name that is an address", config: nodestatus.Config{Hostname: "192.0.2.7"}, host: nodestatus.Host{Default: four},
			want: "192.0.2.7 Hostname=192.0.2.7 ",
		},
		{
			name: "DNS has precedence over the default route", host: nodestatus.Host{Named: ips("127.0.0.1", "192.0.2.1", "fd00::1", "10.0.0.2"), Default: four},
			want: "10.0.0.2 Hostname=n1 ",
		},
		{name: "DNS has addresses of other machines only", host: nodestatus.Host{Named: ips("192.0.2.1"), Default: four}, want: "10.0.0.1 Hostname=n1 "},
		{name: "host name other than the node name", config: nodestatus.Config{Hostname: "host"}, host: nodestatus.Host{Default: four}, want: "10.0.0.1 Hostname=host "},
		{name: "external", config: nodestatus.Config{ExternalCloudProvider: true}, want: "Hostname=n1 "},
		{
			name: "external, node IP", config: nodestatus.Config{ExternalCloudProvider: true, NodeIPs: ips("10.0.0.1")},
			want: "10.0.0.1 Hostname=n1 ", provided: "10.0.0.1",
		},
		{
			name: "external, dual stack", config: nodestatus.Config{ExternalCloudProvider: true, NodeIPs: ips("10.0.0.1", "fd00::1")},
			want: "10.0.0.1 fd00::1 Hostname=n1 ", provided: "10.0.0.1,fd00::1",
		},
		{
			name: "external, addresses already set", config: nodestatus.Config{ExternalCloudProvider: true, NodeIPs: ips("10.0.0.1")}, current: theirs,
			want: "ExternalIP=198.51.100.1 ", provided: "10.0.0.1",
		},
		{
			name: "external, unspecified", config: nodestatus.Config{ExternalCloudProvider: true, NodeIPs: ips("0.0.0.0")},
			host: nodestatus.Host{Default: four}, want: "10.0.0.1 Hostname=n1 ",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := facts()
			test.config.Name, test.host.Interfaces = "n1", interfaces
			in.Config, in.Host = test.config, test.host
			addresses, err := nodestatus.Addresses(&in.Config, in.Host, test.current)
			require.NoError(t, err)
			assert.Equal(t, test.want, brief(addresses))

			previous := &corev1.Node{}
			previous.Annotations = map[string]string{nodestatus.AnnotationProvidedNodeIP: "stale", "theirs": "1"}
			previous.Status.Addresses = test.current
			node, _ := nodestatus.Build(previous, in)
			assert.Equal(t, test.want, brief(node.Status.Addresses))
			assert.Equal(t, test.provided, node.Annotations[nodestatus.AnnotationProvidedNodeIP])
			assert.Equal(t, "1", node.Annotations["theirs"])
			assert.Empty(t, nodestatus.FactErrors(previous, in))
		})
	}
}

// Addresses that cannot be found keep their values, and FactErrors returns the reason.
func TestFactErrorsNamesUnknownAddresses(t *testing.T) {
	down := errors.New("netlink is down")
	for _, test := range []struct {
		name string
		ips  []netip.Addr
		host nodestatus.Host
		want string
	}{
		{"loopback", ips("127.0.0.1"), nodestatus.Host{}, "node IP 127.0.0.1: can't be loopback address"},
		{"multicast", ips("224.0.0.1"), nodestatus.Host{}, "node IP 224.0.0.1: can't be a multicast address"},
		{"link-local", ips("fe80::1"), nodestatus.Host{}, "node IP fe80::1: can't be a link-local unicast address"},
		{"address of another machine", ips("192.0.2.1"), nodestatus.Host{}, "node IP 192.0.2.1: not found in the host's network interfaces"},
		{
			"second address of another machine", ips("10.0.0.1", "2001:db8::1"),
			nodestatus.Host{},
			"node IP 2001:db8::1: not found in the host's network interfaces",
		},
		{"interfaces are unknown", ips("192.0.2.1"), nodestatus.Host{Err: down}, "node IP 192.0.2.1: netlink is down"},
		{
			"no address to choose from", nil,
			nodestatus.Host{Named: ips("127.0.0.1", "192.0.2.1")},
			"addresses of node n1: the name has no address of this machine, and there is no default route",
		},
		{"routes are unknown", nil, nodestatus.Host{Err: down}, "addresses of node n1: netlink is down"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := facts()
			node, _ := nodestatus.Initial(in)
			test.host.Interfaces = ips("127.0.0.1", "10.0.0.1", "fe80::1")
			in.Config.NodeIPs, in.Host = test.ips, test.host

			_, err := nodestatus.Addresses(&in.Config, in.Host, nil)
			require.EqualError(t, err, test.want)
			assert.Equal(t, []error{err}, nodestatus.FactErrors(node, in))
			later, _ := nodestatus.Build(node, in)
			assert.Equal(t, node.Status.Addresses, later.Status.Addresses)
		})
	}
}

func TestNeedsLookupOnlyWithoutConfiguredAddress(t *testing.T) {
	for _, test := range []struct {
		name   string
		config nodestatus.Config
		want   bool
	}{
		{"nothing configured", nodestatus.Config{Name: "n1"}, true},
		{"node IP", nodestatus.Config{Name: "n1", NodeIPs: ips("10.0.0.1")}, false},
		{"unspecified node IP", nodestatus.Config{Name: "n1", NodeIPs: ips("::")}, true},
		{"name that is an address", nodestatus.Config{Name: "192.0.2.1"}, false},
		{"external", nodestatus.Config{Name: "n1", ExternalCloudProvider: true}, false},
		{"external, unspecified", nodestatus.Config{Name: "n1", ExternalCloudProvider: true, NodeIPs: ips("0.0.0.0")}, true},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Equal(t, test.want, test.config.NeedsLookup()) })
	}
}
