// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Pod is the information about a pod sandbox for plugins. Only SandboxID is required.
type Pod struct {
	SandboxID string // letters, digits, dots, dashes and underscores
	UID       string
	Namespace string
	Name      string

	Annotations map[string]string // the bandwidth annotations are parsed; plugins that request annotations get all
	Ports       []PortMapping     // mappings without a host port are ignored
	DNS         *DNS              // nil: not passed to plugins
	CgroupPath  string            // empty: not passed to plugins

	// Requests that override the choice of the network. They require a plugin with the capability; other plugins ignore them.
	IPs      []netip.Prefix
	IPRanges [][]IPRange
	MAC      string
	Aliases  []string
}

// PortMapping publishes a port of a pod on the host.
type PortMapping struct {
	Protocol      string // "tcp", "udp" or "sctp" in any case; empty means "tcp"
	HostPort      int32  // zero: not published
	ContainerPort int32
	HostIP        string // empty: all addresses
}

// IPRange is a range from which the address of a pod is chosen.
type IPRange struct {
	Subnet     netip.Prefix
	RangeStart netip.Addr // zero Addr: the first address of the subnet
	RangeEnd   netip.Addr // zero Addr: the last address
	Gateway    netip.Addr // zero Addr: chosen by the plugin
}

// maxID is the maximum length of a container ID in bytes, because it is part of file names.
const maxID = 128

func checkID(id string) error {
	if !validName.MatchString(id) || len(id) > maxID {
		return fmt.Errorf("sandbox ID %.*q must have up to %d letters, digits, dots, dashes and underscores", maxID, id, maxID)
	}
	return nil
}

// podArgs returns the CNI_ARGS for pod, in the same order as containerd. It returns an error if a value contains a
// separator.
func podArgs(pod Pod) ([][2]string, error) {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", pod.Namespace},
		{"K8S_POD_NAME", pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", pod.SandboxID},
		{"K8S_POD_UID", pod.UID},
	}
	for _, arg := range args {
		// Plugins split CNI_ARGS at these characters.
		if strings.ContainsAny(arg[1], ";=\x00") {
			return nil, fmt.Errorf("CNI_ARGS: %s: %.100q has a separator in it", arg[0], arg[1])
		}
	}
	return args, nil
}

// Protocols of a port mapping in the JSON for plugins.
const (
	tcp  = "tcp"
	udp  = "udp"
	sctp = "sctp"
)

// portMapping is the JSON of the portMappings capability.
type portMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP,omitempty"`
}

// newPortMappings converts port mappings to the JSON format for plugins. It skips mappings without a host port.
func newPortMappings(ports []PortMapping) ([]portMapping, error) {
	var mapped []portMapping
	for i, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		m, err := newPortMapping(p)
		if err != nil {
			return nil, fmt.Errorf("ports[%d].%w", i, err)
		}
		mapped = append(mapped, m)
	}
	return mapped, nil
}

func newPortMapping(mapping PortMapping) (portMapping, error) {
	m := portMapping{HostPort: mapping.HostPort, ContainerPort: mapping.ContainerPort, Protocol: strings.ToLower(mapping.Protocol), HostIP: mapping.HostIP}
	if m.Protocol == "" {
		m.Protocol = tcp
	}
	_, hostErr := netip.ParseAddr(mapping.HostIP)
	const last = 1<<16 - 1
	switch {
	case mapping.HostPort < 0 || mapping.HostPort > last:
		return m, fmt.Errorf("hostPort: %d must be 0 to %d", mapping.HostPort, last)
	case mapping.ContainerPort < 1 || mapping.ContainerPort > last:
		return m, fmt.Errorf("containerPort: %d must be 1 to %d", mapping.ContainerPort, last)
	case m.Protocol != tcp && m.Protocol != udp && m.Protocol != sctp:
		return m, fmt.Errorf("protocol: %.20q must be tcp, udp or sctp", mapping.Protocol)
	case mapping.HostIP != "" && hostErr != nil:
		return m, fmt.Errorf("hostIP: %w", hostErr)
	}
	return m, nil
}

// ipRange is the JSON of the ipRanges capability.
type ipRange struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Gateway    string `json:"gateway,omitempty"`
}

func newIPRanges(sets [][]IPRange) ([][]ipRange, error) {
	var all [][]ipRange
	for i, set := range sets {
		var ranges []ipRange
		for j, r := range set {
			if !r.Subnet.IsValid() {
				return nil, fmt.Errorf("ipRanges[%d][%d].subnet: %w", i, j, errors.New("required"))
			}
			ranges = append(ranges, ipRange{
				Subnet: r.Subnet.String(), RangeStart: addrText(r.RangeStart), RangeEnd: addrText(r.RangeEnd), Gateway: addrText(r.Gateway),
			})
		}
		all = append(all, ranges)
	}
	return all, nil
}

// addrText returns addr as text, or "" if addr is the zero Addr.
func addrText(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}
