// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Pod is what plugins may want to know of a pod sandbox. Only SandboxID is required.
type Pod struct {
	SandboxID string // letters, digits, dots, dashes and underscores
	UID       string
	Namespace string
	Name      string

	Annotations map[string]string // those for bandwidth count; all are passed to plugins that want them
	Ports       []PortMapping     // those without a host port are left out
	DNS         *DNS              // nil: plugins are not told
	CgroupPath  string            // empty: plugins are not told

	// What is asked for instead of what the network would choose. It needs a plugin with the capability; others ignore it.
	IPs      []netip.Prefix
	IPRanges [][]IPRange
	MAC      string
	Aliases  []string
}

// PortMapping publishes a port of a pod on the host.
type PortMapping struct {
	Protocol      string // "tcp", "udp" or "sctp", in any case; empty means "tcp"
	HostPort      int32  // zero publishes nothing
	ContainerPort int32
	HostIP        string // empty: every address
}

// IPRange is a range of addresses that a pod's is taken from.
type IPRange struct {
	Subnet     netip.Prefix
	RangeStart netip.Addr // the zero Addr: the first of the subnet
	RangeEnd   netip.Addr // the zero Addr: the last one
	Gateway    netip.Addr // the zero Addr: the plugin's choice
}

// maxID is the most bytes that the ID of a container may have: it is part of file names.
const maxID = 128

func checkID(id string) error {
	if !validName.MatchString(id) || len(id) > maxID {
		return fmt.Errorf("sandbox ID %.*q must have up to %d letters, digits, dots, dashes and underscores", maxID, id, maxID)
	}
	return nil
}

// podArgs returns the CNI_ARGS of a pod, in the order of containerd's list, which is the only one that does not depend on
// a map.
func podArgs(p Pod) ([][2]string, error) {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", p.Namespace},
		{"K8S_POD_NAME", p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", p.SandboxID},
		{"K8S_POD_UID", p.UID},
	}
	for _, arg := range args {
		// A plugin splits at these, and would take a part of a name for another argument.
		if strings.ContainsAny(arg[1], ";=\x00") {
			return nil, fmt.Errorf("CNI_ARGS: %s: %.100q has a separator in it", arg[0], arg[1])
		}
	}
	return args, nil
}

// The protocols of a port mapping, as plugins know them.
const (
	tcp  = "tcp"
	udp  = "udp"
	sctp = "sctp"
)

// portMapping is a port mapping as plugins know it.
type portMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// portMappings returns those that publish a port.
func portMappings(ports []PortMapping) ([]portMapping, error) {
	var mapped []portMapping
	for i, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		m, err := mapPort(p)
		if err != nil {
			return nil, fmt.Errorf("ports[%d].%w", i, err)
		}
		mapped = append(mapped, m)
	}
	return mapped, nil
}

func mapPort(p PortMapping) (portMapping, error) {
	m := portMapping{HostPort: p.HostPort, ContainerPort: p.ContainerPort, Protocol: strings.ToLower(p.Protocol), HostIP: p.HostIP}
	if m.Protocol == "" {
		m.Protocol = tcp
	}
	_, hostErr := netip.ParseAddr(p.HostIP)
	const last = 1<<16 - 1
	switch {
	case p.HostPort < 0 || p.HostPort > last:
		return m, fmt.Errorf("hostPort: %d must be 0 to %d", p.HostPort, last)
	case p.ContainerPort < 1 || p.ContainerPort > last:
		return m, fmt.Errorf("containerPort: %d must be 1 to %d", p.ContainerPort, last)
	case m.Protocol != tcp && m.Protocol != udp && m.Protocol != sctp:
		return m, fmt.Errorf("protocol: %.20q must be tcp, udp or sctp", p.Protocol)
	case p.HostIP != "" && hostErr != nil:
		return m, fmt.Errorf("hostIP: %w", hostErr)
	}
	return m, nil
}

// ipRange is a range of addresses as plugins know it.
type ipRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Gateway    string `json:"gateway,omitempty"`
}

func ipRanges(sets [][]IPRange) ([][]ipRange, error) {
	var all [][]ipRange
	for i, set := range sets {
		var ranges []ipRange
		for j, r := range set {
			if !r.Subnet.IsValid() {
				return nil, fmt.Errorf("ipRanges[%d][%d].subnet: %w", i, j, errors.New("it is required"))
			}
			ranges = append(ranges, ipRange{
				Subnet: r.Subnet.String(), RangeStart: text(r.RangeStart), RangeEnd: text(r.RangeEnd), Gateway: text(r.Gateway),
			})
		}
		all = append(all, ranges)
	}
	return all, nil
}

// text returns an address, or nothing.
func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
