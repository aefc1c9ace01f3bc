// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
)

// Names of capabilities, by which a plugin says what it wants to be told. libcni tells each plugin those alone.
const (
	CapPortMappings   = "portMappings"
	CapBandwidth      = "bandwidth"
	CapDNS            = "dns"
	CapIPs            = "ips"
	CapIPRanges       = "ipRanges"
	CapMAC            = "mac"
	CapAliases        = "aliases"
	CapCgroupPath     = "cgroupPath"
	CapPodAnnotations = "io.kubernetes.cri.pod-annotations"
)

// Annotations of a pod that limit what it receives and sends, in bits per second. They are quantities from 1k to 1P.
const (
	AnnotationIngressBandwidth = "kubernetes.io/ingress-bandwidth"
	AnnotationEgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// bandwidth is a limit as plugins know it: bits per second, and bits.
type bandwidth struct {
	IngressRate  int64  `json:"ingressRate,omitempty"`
	IngressBurst uint32 `json:"ingressBurst,omitempty"`
	EgressRate   int64  `json:"egressRate,omitempty"`
	EgressBurst  uint32 `json:"egressBurst,omitempty"`
}

// dnsConfig is a resolver's configuration as plugins know it.
type dnsConfig struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Capabilities are what plugins are told, as JSON by the name of the capability.
type Capabilities map[string]json.RawMessage

// Capabilities returns what the plugins of a network are told about a pod, for those that want it. An error names the
// field.
func (p Pod) Capabilities() (Capabilities, error) {
	ports, err := portMappings(p.Ports)
	if err != nil {
		return nil, err
	}
	ranges, err := ipRanges(p.IPRanges)
	if err != nil {
		return nil, err
	}
	limit, err := podBandwidth(p.Annotations)
	if err != nil {
		return nil, err
	}
	if p.MAC != "" {
		if _, err := net.ParseMAC(p.MAC); err != nil {
			return nil, fmt.Errorf("mac: %w", err)
		}
	}
	var dns dnsConfig
	if p.DNS != nil {
		dns = dnsConfig{Servers: p.DNS.Servers, Searches: p.DNS.Searches, Options: p.DNS.Options}
	}
	caps := Capabilities{}
	for _, c := range []struct {
		name  string
		there bool
		value any
	}{
		{CapPortMappings, len(ports) > 0, ports},
		{CapBandwidth, limit != bandwidth{}, limit},
		{CapDNS, p.DNS != nil, dns},
		{CapIPs, len(p.IPs) > 0, p.IPs},
		{CapIPRanges, len(ranges) > 0, ranges},
		{CapMAC, p.MAC != "", p.MAC},
		{CapAliases, len(p.Aliases) > 0, p.Aliases},
		{CapCgroupPath, p.CgroupPath != "", p.CgroupPath},
		{CapPodAnnotations, len(p.Annotations) > 0, p.Annotations},
	} {
		if !c.there {
			continue
		}
		if caps[c.name], err = json.Marshal(c.value); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return caps, nil
}

// podBandwidth reads the annotations. The plugin wants a burst with each rate; it is the largest one, as containerd has it.
func podBandwidth(annotations map[string]string) (b bandwidth, err error) {
	if b.IngressRate, err = rate(annotations, AnnotationIngressBandwidth); err != nil {
		return bandwidth{}, err
	}
	if b.EgressRate, err = rate(annotations, AnnotationEgressBandwidth); err != nil {
		return bandwidth{}, err
	}
	if b.IngressRate > 0 {
		b.IngressBurst = math.MaxUint32
	}
	if b.EgressRate > 0 {
		b.EgressBurst = math.MaxUint32
	}
	return b, nil
}

// The least and the most bandwidth that a pod may ask for.
const (
	minRate = 1_000
	maxRate = 1_000_000_000_000_000
)

func rate(annotations map[string]string, key string) (int64, error) {
	value, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	bits, err := parseQuantity(value)
	if err == nil && (bits < minRate || bits > maxRate) {
		err = fmt.Errorf("it is not between 1k and 1P")
	}
	if err != nil {
		return 0, fmt.Errorf("annotations[%s]: %.50q: %w", key, value, err)
	}
	return bits, nil
}
