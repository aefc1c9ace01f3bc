// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// DefaultLookupTimeout is the default of [Lookup].Timeout, for DNS queries.
const DefaultLookupTimeout = 2 * time.Second

// Lookup reads the addresses of this machine. The zero value is ready for use. Its methods may be called from any goroutine.
type Lookup struct {
	Resolver *net.Resolver // nil: net.DefaultResolver
	Timeout  time.Duration // of a DNS query; zero means [DefaultLookupTimeout]
}

// Host returns the addresses of the network interfaces. If config does not suffice to choose the node's address, it also queries
// DNS for the node name, and then uses the default route. A failed DNS query counts as a name without addresses.
func (l Lookup) Host(ctx context.Context, config *Config) Host {
	var h Host
	h.Interfaces, h.Err = interfaceAddresses()
	if !config.needsLookup() {
		return h
	}
	h.Named = l.resolveName(ctx, config.Name)
	if slices.ContainsFunc(h.Named, func(ip netip.Addr) bool { return h.validateNodeIP(ip) == nil }) {
		return h
	}
	unspecified := net.IPv4zero
	if _, preferIPv4 := config.configuredIPs(); !preferIPv4 {
		unspecified = net.IPv6unspecified
	}
	ip, err := utilnet.ResolveBindAddress(unspecified)
	if err != nil {
		h.Err = fmt.Errorf("find default route: %w", err)
		return h
	}
	h.Default, _ = netip.AddrFromSlice(ip)
	h.Default = h.Default.Unmap()
	return h
}

// resolveName returns the addresses of a name in DNS, or nil.
func (l Lookup) resolveName(ctx context.Context, name string) []netip.Addr {
	timeout := l.Timeout
	if timeout == 0 {
		timeout = DefaultLookupTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resolver := l.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ips, err := resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil // most node names are not in DNS
	}
	return ips
}

// interfaceAddresses returns the addresses of all network interfaces, without IPv6 zones.
func interfaceAddresses() (ips []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	for _, addr := range all {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			ips = append(ips, prefix.Addr().Unmap())
		} else if ip, err := netip.ParseAddr(addr.String()); err == nil {
			ips = append(ips, ip.Unmap().WithZone(""))
		}
	}
	return ips, nil
}
