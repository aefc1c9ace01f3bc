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

// DefaultLookupTimeout is how long a name server may take.
const DefaultLookupTimeout = 2 * time.Second

// Lookup finds out the addresses of this machine. The zero value is ready for use, and may be used by several goroutines.
type Lookup struct {
	Resolver *net.Resolver // nil: that of the system
	Timeout  time.Duration // of a question to the name server; zero means [DefaultLookupTimeout]
}

// Host reads the network interfaces, and asks the name server and the routes where the configuration needs them. It returns when ctx ends, at
// the latest. What a name server does not answer in time has no address.
func (l Lookup) Host(ctx context.Context, c *Config) Host {
	var h Host
	h.Interfaces, h.Err = interfaces()
	if !c.needsLookup() {
		return h
	}
	h.Named = l.named(ctx, c.Name)
	if slices.ContainsFunc(h.Named, func(ip netip.Addr) bool { return h.check(ip) == nil }) {
		return h
	}
	unspecified := net.IPv4zero
	if _, preferIPv4 := c.specified(); !preferIPv4 {
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

// named returns the addresses of a name.
func (l Lookup) named(ctx context.Context, name string) []netip.Addr {
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
		return nil // most names of nodes are in no DNS
	}
	return ips
}

// interfaces returns the addresses of the network interfaces.
func interfaces() (ips []netip.Addr, err error) {
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
