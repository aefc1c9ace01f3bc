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

// Host is what a machine and its name server know of its addresses. [Lookup.Host] finds it out.
type Host struct {
	// Interfaces are the addresses of all network interfaces, without zones.
	Interfaces []netip.Addr
	// Named are the addresses that the name of the node has in DNS, in the order of the answer.
	Named []netip.Addr
	// Default is the address of the interface that the default route leads to, of the family that is preferred where it has both. The
	// zero value: there is none.
	Default netip.Addr
	// Err is why Interfaces or Default are not known, or nil.
	Err error
}

// check returns why an address cannot be that of the node, or nil (validateNodeIP in pkg/kubelet/kubelet_node_status.go).
func (h *Host) check(ip netip.Addr) error {
	if ip = ip.Unmap(); slices.ContainsFunc(h.Interfaces, func(a netip.Addr) bool { return a.Unmap() == ip }) {
		return unusable(ip)
	}
	if err := unusable(ip); err != nil {
		return err
	}
	if h.Err != nil {
		return fmt.Errorf("node IP %s: %w", ip, h.Err)
	}
	return fmt.Errorf("node IP %s: not found in the host's network interfaces", ip)
}

// checkAll returns why one of some addresses cannot be that of the node, or nil.
func (h *Host) checkAll(ips []netip.Addr) error {
	for _, ip := range ips {
		if err := h.check(ip); err != nil {
			return err
		}
	}
	return nil
}

// unusable returns why an address can be that of no node, or nil.
func unusable(ip netip.Addr) error {
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

// specified returns the node IPs of a configuration that are addresses, and whether IPv4 is preferred.
func (c *Config) specified() (ips []netip.Addr, preferIPv4 bool) {
	for i, ip := range c.NodeIPs {
		if i == 0 && !ip.Unmap().Is4() {
			preferIPv4 = true
		}
		if ip.IsValid() && !ip.IsUnspecified() {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips, !preferIPv4
}

// hostAddress returns the host name where that is an address.
func (c *Config) hostAddress() (netip.Addr, bool) {
	ip, err := netip.ParseAddr(c.hostname())
	return ip.Unmap(), err == nil && ip.Zone() == ""
}

// needsLookup reports whether the addresses of a node depend on the name server and the default route.
func (c *Config) needsLookup() bool {
	ips, _ := c.specified()
	_, isAddress := c.hostAddress()
	return len(ips) == 0 && !isAddress && (!c.ExternalCloudProvider || len(c.NodeIPs) > 0)
}

// addresses returns the addresses that a Node object is to have, or why they cannot be found: then it keeps those that it has. They
// are, one after the other, the first that there is of: the node IPs of the configuration, a host name that is an address, what the name server
// has for the name of the node, and the address of the default route. With an external cloud provider, addresses that are there are its own.
func addresses(c *Config, h Host, current []corev1.NodeAddress) ([]corev1.NodeAddress, error) {
	ips, preferIPv4 := c.specified()
	if err := h.checkAll(ips); err != nil {
		return current, err
	}
	if c.ExternalCloudProvider {
		if len(current) > 0 {
			return current, nil
		}
		if len(c.NodeIPs) == 0 {
			return published(nil, c.hostname()), nil
		}
	}
	if len(ips) > 0 {
		return published(ips, c.hostname()), nil
	}
	ip, err := choose(c, h, preferIPv4)
	if err != nil {
		return current, fmt.Errorf("addresses of node %s: %w", c.Name, err)
	}
	return published([]netip.Addr{ip}, c.hostname()), nil
}

// choose returns the address of a node whose configuration has none.
func choose(c *Config, h Host, preferIPv4 bool) (netip.Addr, error) {
	if ip, is := c.hostAddress(); is {
		return ip, nil
	}
	var other netip.Addr
	for _, ip := range h.Named {
		if h.check(ip) != nil {
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
	case h.Default.IsValid():
		return h.Default.Unmap(), nil
	case h.Err != nil:
		return netip.Addr{}, h.Err
	}
	return netip.Addr{}, errors.New("the name has no address of this machine, and there is no default route")
}

// published returns addresses as a Node object has them.
func published(ips []netip.Addr, hostname string) []corev1.NodeAddress {
	all := make([]corev1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		all = append(all, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(all, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname})
}

// setAddresses sets addresses, and tells an external cloud provider which are configured.
func (b *builder) setAddresses() {
	c := &b.in.Config
	ips, _ := c.specified()
	if b.in.Host.checkAll(ips) != nil {
		return
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
	if addresses, err := addresses(c, b.in.Host, b.node.Status.Addresses); err == nil {
		b.node.Status.Addresses = addresses
	}
}
