// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
)

func TestCapabilitiesOfPod(t *testing.T) {
	ingress := func(value string) map[string]string {
		return map[string]string{cni.AnnotationIngressBandwidth: value}
	}
	for name, test := range map[string]struct {
		pod        cni.Pod
		capability string
		want       string // empty: not passed to plugins
	}{
		"a port":         {cni.Pod{Ports: []cni.PortMapping{{Protocol: "TCP", HostPort: 80, ContainerPort: 8080, HostIP: "10.0.0.1"}}}, cni.CapPortMappings, `[{"hostPort":80,"containerPort":8080,"protocol":"tcp","hostIP":"10.0.0.1"}]`},
		"no host port":   {cni.Pod{Ports: []cni.PortMapping{{ContainerPort: 8080}}}, cni.CapPortMappings, ""},
		"protocols":      {cni.Pod{Ports: []cni.PortMapping{{HostPort: 1, ContainerPort: 2}, {ContainerPort: 3}, {Protocol: "SCTP", HostPort: 4, ContainerPort: 5}}}, cni.CapPortMappings, `[{"hostPort":1,"containerPort":2,"protocol":"tcp"},{"hostPort":4,"containerPort":5,"protocol":"sctp"}]`},
		"ingress":        {cni.Pod{Annotations: ingress("1M")}, cni.CapBandwidth, `{"ingressRate":1000000,"ingressBurst":4294967295}`},
		"egress":         {cni.Pod{Annotations: map[string]string{cni.AnnotationEgressBandwidth: "1Gi"}}, cni.CapBandwidth, `{"egressRate":1073741824,"egressBurst":4294967295}`},
		"no bandwidth":   {cni.Pod{Annotations: map[string]string{"a": "b"}}, cni.CapBandwidth, ""},
		"annotations":    {cni.Pod{Annotations: map[string]string{"a": "b"}}, cni.CapPodAnnotations, `{"a":"b"}`},
		"no annotations": {cni.Pod{}, cni.CapPodAnnotations, ""},
		"dns":            {cni.Pod{DNS: &cni.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"x.y"}, Options: []string{"ndots:5"}}}, cni.CapDNS, `{"servers":["10.0.0.10"],"searches":["x.y"],"options":["ndots:5"]}`},
		"no dns":         {cni.Pod{}, cni.CapDNS, ""},
		"mac":            {cni.Pod{MAC: "02:00:00:00:00:01"}, cni.CapMAC, `"02:00:00:00:00:01"`},
		"aliases":        {cni.Pod{Aliases: []string{"a", "b"}}, cni.CapAliases, `["a","b"]`},
		"cgroup":         {cni.Pod{CgroupPath: "/kubepods/pod1"}, cni.CapCgroupPath, `"/kubepods/pod1"`},
		"ips":            {cni.Pod{IPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}}, cni.CapIPs, `["10.0.0.9/24"]`},
		"ranges": {
			cni.Pod{IPRanges: [][]cni.IPRange{{{Subnet: netip.MustParsePrefix("10.1.0.0/24"), RangeStart: netip.MustParseAddr("10.1.0.9")}}, {{Subnet: netip.MustParsePrefix("fd00::/64")}}}},
			cni.CapIPRanges, `[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.9"}],[{"subnet":"fd00::/64"}]]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			caps, err := test.pod.Capabilities()
			require.NoError(t, err)
			assert.Equal(t, test.want, string(caps[test.capability]))
			for _, value := range caps {
				require.True(t, json.Valid(value))
			}
		})
	}
}

func TestCapabilitiesRejectInvalidPods(t *testing.T) {
	port := func(p cni.PortMapping) cni.Pod { return cni.Pod{Ports: []cni.PortMapping{{ContainerPort: 1}, p}} }
	for want, pod := range map[string]cni.Pod{
		`ports[1].hostPort: 65536 must be 0 to 65535`:                                    port(cni.PortMapping{HostPort: 65536, ContainerPort: 1}),
		`ports[1].hostPort: -1 must be 0 to 65535`:                                       port(cni.PortMapping{HostPort: -1, ContainerPort: 1}),
		`ports[1].containerPort: 0 must be 1 to 65535`:                                   port(cni.PortMapping{HostPort: 1}),
		`ports[1].protocol: "icmp" must be tcp, udp or sctp`:                             port(cni.PortMapping{HostPort: 1, ContainerPort: 1, Protocol: "icmp"}),
		`ports[1].hostIP: ParseAddr("x"): unable to parse IP`:                            port(cni.PortMapping{HostPort: 1, ContainerPort: 1, HostIP: "x"}),
		`ipRanges[0][0].subnet: required`:                                                {IPRanges: [][]cni.IPRange{{{}}}},
		`mac: address x: invalid MAC address`:                                            {MAC: "x"},
		`annotations[kubernetes.io/ingress-bandwidth]: "500": must be between 1k and 1P`: {Annotations: map[string]string{cni.AnnotationIngressBandwidth: "500"}},
		`annotations[kubernetes.io/egress-bandwidth]: "2P": must be between 1k and 1P`:   {Annotations: map[string]string{cni.AnnotationEgressBandwidth: "2P"}},
		`annotations[kubernetes.io/egress-bandwidth]: "fast": not a quantity`:            {Annotations: map[string]string{cni.AnnotationEgressBandwidth: "fast"}},
		`annotations[kubernetes.io/ingress-bandwidth]: "": not a quantity`:               {Annotations: map[string]string{cni.AnnotationIngressBandwidth: ""}},
	} {
		_, err := pod.Capabilities()
		assert.EqualError(t, err, want)
	}
}
