// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
)

// Names of capabilities (runtime configuration) that a plugin can request. libcni passes only the requested ones to each plugin.
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

// Pod annotations that limit the received and sent bits per second. Values are Kubernetes quantities from 1k to 1P.
const (
	AnnotationIngressBandwidth = "kubernetes.io/ingress-bandwidth"
	AnnotationEgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

// bandwidth is the JSON of the bandwidth capability: rates in bits per second, bursts in bits.
type bandwidth struct {
	IngressRate  int64  `json:"ingressRate,omitempty"`
	IngressBurst uint32 `json:"ingressBurst,omitempty"`
	EgressRate   int64  `json:"egressRate,omitempty"`
	EgressBurst  uint32 `json:"egressBurst,omitempty"`
}

// dnsConfig is the JSON of the dns capability.
type dnsConfig struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Capabilities are the capability values for plugins: JSON by the name of the capability, such as [CapPortMappings].
type Capabilities map[string]json.RawMessage

// Capabilities returns the capability values that plugins receive for the pod, such as its port mappings. If a field of the
// pod is invalid, the error names it.
func (p Pod) Capabilities() (Capabilities, error) {
	ports, err := newPortMappings(p.Ports)
	if err != nil {
		return nil, err
	}
	ranges, err := newIPRanges(p.IPRanges)
	if err != nil {
		return nil, err
	}
	limit, err := parseBandwidth(p.Annotations)
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

// parseBandwidth parses the bandwidth annotations of a pod.
func parseBandwidth(annotations map[string]string) (b bandwidth, err error) {
	if b.IngressRate, err = parseRate(annotations, AnnotationIngressBandwidth); err != nil {
		return bandwidth{}, err
	}
	if b.EgressRate, err = parseRate(annotations, AnnotationEgressBandwidth); err != nil {
		return bandwidth{}, err
	}
	// the bandwidth plugin requires burst sizes; the largest value, as in containerd
	if b.IngressRate > 0 {
		b.IngressBurst = math.MaxUint32
	}
	if b.EgressRate > 0 {
		b.EgressBurst = math.MaxUint32
	}
	return b, nil
}

// Limits for the bandwidth of a pod in bits per second.
const (
	minRate = 1_000
	maxRate = 1_000_000_000_000_000
)

func parseRate(annotations map[string]string, key string) (int64, error) {
	value, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	bits, err := parseQuantity(value)
	if err == nil && (bits < minRate || bits > maxRate) {
		err = fmt.Errorf("must be between 1k and 1P")
	}
	if err != nil {
		return 0, fmt.Errorf("annotations[%s]: %.50q: %w", key, value, err)
	}
	return bits, nil
}
