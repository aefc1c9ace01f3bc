// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Host has the IP addresses of a machine. The addresses in the Node object are chosen from them. [Lookup.Host] reads them.
type Host struct {
	// Interfaces are the addresses of all network interfaces, without zones.
	Interfaces []netip.Addr
	// Named are the addresses of the node name in DNS, in the order of the response.
	Named []netip.Addr
	// Default is the address of the interface with the default route, of the preferred family if the interface has IPv4 and IPv6.
	// Zero: there is no default route.
	Default netip.Addr
	// Err is the error of reading Interfaces or Default, or nil.
	Err error
}

// validateNodeIP returns an error unless ip is a usable address of a network interface of this machine. Source:
// validateNodeIP in pkg/kubelet/kubelet_node_status.go.
func (h *Host) validateNodeIP(ip netip.Addr) error {
	if ip = ip.Unmap(); slices.ContainsFunc(h.Interfaces, func(a netip.Addr) bool { return a.Unmap() == ip }) {
		return checkUsableIP(ip)
	}
	if err := checkUsableIP(ip); err != nil {
		return err
	}
	if h.Err != nil {
		return fmt.Errorf("node IP %s: %w", ip, h.Err)
	}
	return fmt.Errorf("node IP %s: not found in the host's network interfaces", ip)
}

// validateNodeIPs calls validateNodeIP for each address, and returns the first error.
func (h *Host) validateNodeIPs(ips []netip.Addr) error {
	for _, ip := range ips {
		if err := h.validateNodeIP(ip); err != nil {
			return err
		}
	}
	return nil
}

// checkUsableIP returns an error if no node can have the address ip, such as a loopback or multicast address.
func checkUsableIP(ip netip.Addr) error {
	for _, kind := range []struct {
		is   bool
		text string
	}{
		{!ip.IsValid(), "must be a valid IP address"},
		{ip.IsLoopback(), "can't be loopback address"},
		{ip.IsMulticast(), "can't be a multicast address"},
		{ip.IsLinkLocalUnicast(), "can't be a link-local unicast address"},
		{ip.IsUnspecified(), "can't be an all zeros address"},
	} {
		if kind.is {
			return fmt.Errorf("node IP %s: %s", ip, kind.text)
		}
	}
	return nil
}

// configuredIPs returns the addresses in NodeIPs. The first, which may be 0.0.0.0 or ::, selects the preferred IP family.
func (c *Config) configuredIPs() (ips []netip.Addr, preferIPv4 bool) {
	preferIPv4 = true
	for i, ip := range c.NodeIPs {
		if i == 0 && !ip.Unmap().Is4() {
			preferIPv4 = false
		}
		// 0.0.0.0 and :: only select an IP family.
		if ip.IsValid() && !ip.IsUnspecified() {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips, preferIPv4
}

// hostAddress returns the host name as an IP address. It returns false if the host name is not an IP address.
func (c *Config) hostAddress() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(c.hostnameOrName())
	return ip.Unmap(), err == nil && ip.Zone() == ""
}

// needsLookup reports whether the node addresses depend on a DNS query and the default route. This is not the case if
// addresses are configured.
func (c *Config) needsLookup() bool {
	ips, _ := c.configuredIPs()
	_, isAddress := c.hostAddress()
	return len(ips) == 0 && !isAddress && (!c.ExternalCloudProvider || len(c.NodeIPs) > 0)
}

// nodeAddresses returns the addresses for the status of the Node: the configured or chosen ones, or the current ones of an
// external cloud provider. On error it returns the current addresses.
func nodeAddresses(config *Config, host Host, current []corev1.NodeAddress) ([]corev1.NodeAddress, error) {
	ips, preferIPv4 := config.configuredIPs()
	if err := host.validateNodeIPs(ips); err != nil {
		return current, err
	}
	if config.ExternalCloudProvider {
		if len(current) > 0 {
			return current, nil
		}
		if len(config.NodeIPs) == 0 {
			return formatAddresses(nil, config.hostnameOrName()), nil
		}
	}
	if len(ips) > 0 {
		return formatAddresses(ips, config.hostnameOrName()), nil
	}
	ip, err := chooseAddress(config, host, preferIPv4)
	if err != nil {
		return current, fmt.Errorf("addresses of node %s: %w", config.Name, err)
	}
	return formatAddresses([]netip.Addr{ip}, config.hostnameOrName()), nil
}

// chooseAddress returns the InternalIP of a node without configured IPs: its host name if that is an address, an address from
// DNS, or that of the default route.
func chooseAddress(config *Config, host Host, preferIPv4 bool) (netip.Addr, error) {
	if ip, is := config.hostAddress(); is {
		return ip, nil
	}
	var other netip.Addr
	for _, ip := range host.Named {
		if host.validateNodeIP(ip) != nil {
			continue
		}
		if ip = ip.Unmap(); ip.Is4() == preferIPv4 {
			return ip, nil
		}
		if !other.IsValid() {
			other = ip
		}
	}
	switch {
	case other.IsValid():
		return other, nil
	case host.Default.IsValid():
		return host.Default.Unmap(), nil
	case host.Err != nil:
		return netip.Addr{}, host.Err
	}
	return netip.Addr{}, errors.New("the name has no address of this machine, and there is no default route")
}

// formatAddresses returns an InternalIP address for each of ips, followed by the Hostname address.
func formatAddresses(ips []netip.Addr, hostname string) []corev1.NodeAddress {
	all := make([]corev1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname})
}

// setAddresses sets status.addresses, and the annotation with the configured node IPs for an external cloud provider.
func (b *builder) setAddresses() {
	c := &b.in.Config
	ips, _ := c.configuredIPs()
	if b.in.Host.validateNodeIPs(ips) != nil {
		return // keep both if a configured IP is invalid
	}
	if c.ExternalCloudProvider && len(ips) > 0 {
		if b.node.Annotations == nil {
			b.node.Annotations = map[string]string{}
		}
		provided := make([]string, len(ips))
		for i, ip := range ips {
			provided[i] = ip.String()
		}
		b.node.Annotations[annotationProvidedNodeIP] = strings.Join(provided, ",")
	} else {
		delete(b.node.Annotations, annotationProvidedNodeIP)
	}
	if addresses, err := nodeAddresses(c, b.in.Host, b.node.Status.Addresses); err == nil {
		b.node.Status.Addresses = addresses
	}
}
