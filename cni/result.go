// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// Limits for the entries of a result. Real results have a few.
const (
	maxInterfaces = 256
	maxIPs        = 256
	maxRoutes     = 1024
	maxDNS        = 64
)

// Result is the result of an ADD.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        DNS
}

// Interface is a network interface that a plugin created or used.
type Interface struct {
	Name    string
	MAC     string
	MTU     int    // zero: not reported
	Sandbox string // path of the network namespace; empty: the host
}

// IP is an address of a container.
type IP struct {
	Interface string       // name of the interface; empty: not reported
	Address   netip.Prefix // with the prefix length of the subnet
	Gateway   netip.Addr   // zero Addr: none
}

// Route is a route of a container.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // zero Addr: the default gateway
}

// DNS is a resolver configuration.
type DNS struct {
	Servers  []string
	Domain   string
	Searches []string
	Options  []string
}

// checkResult returns an error if data is not a valid result of ADD. libcni would panic at null entries.
func checkResult(data []byte) error {
	var r struct {
		Interfaces []json.RawMessage `json:"interfaces"`
		IPs        []json.RawMessage `json:"ips"`
		Routes     []json.RawMessage `json:"routes"`
		IP4        *resultIP02       `json:"ip4"` // before version 0.3.0
		IP6        *resultIP02       `json:"ip6"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("not a JSON object of a result: %w", err)
	}
	if err := checkList("interfaces", r.Interfaces, maxInterfaces); err != nil {
		return err
	}
	if err := checkList("ips", r.IPs, maxIPs); err != nil {
		return err
	}
	if err := checkList("routes", r.Routes, maxRoutes); err != nil {
		return err
	}
	for _, old := range []*resultIP02{r.IP4, r.IP6} {
		if old == nil {
			continue
		}
		if err := checkList("routes", old.Routes, maxRoutes); err != nil {
			return err
		}
	}
	return nil
}

// resultIP02 is an address with its routes in a result before version 0.3.0.
type resultIP02 struct {
	Routes []json.RawMessage `json:"routes"`
}

func checkList(field string, list []json.RawMessage, limit int) error {
	if len(list) > limit {
		return fmt.Errorf("%s: %d entries exceed the limit of %d", field, len(list), limit)
	}
	if i := slices.IndexFunc(list, func(e json.RawMessage) bool { return string(e) == "null" }); i >= 0 {
		return fmt.Errorf("%s[%d] is null", field, i)
	}
	return nil
}

// convertResult converts a result of libcni to a [Result]. The JSON of the result must have passed checkResult.
func convertResult(from types.Result) (*Result, error) {
	r, err := types100.GetResult(from)
	if err != nil {
		return nil, err
	}
	to := &Result{DNS: DNS{Servers: r.DNS.Nameservers, Domain: r.DNS.Domain, Searches: r.DNS.Search, Options: r.DNS.Options}}
	if n := max(len(to.DNS.Servers), len(to.DNS.Searches), len(to.DNS.Options)); n > maxDNS {
		return nil, fmt.Errorf("dns: %d entries exceed the limit of %d", n, maxDNS)
	}
	for _, i := range r.Interfaces {
		to.Interfaces = append(to.Interfaces, Interface{Name: i.Name, MAC: i.Mac, MTU: i.Mtu, Sandbox: i.Sandbox})
	}
	for i, ip := range r.IPs {
		converted, err := convertIP(ip, to.Interfaces)
		if err != nil {
			return nil, fmt.Errorf("ips[%d]: %w", i, err)
		}
		to.IPs = append(to.IPs, converted)
	}
	for i, route := range r.Routes {
		destination, err := toPrefix(route.Dst)
		if err != nil {
			return nil, fmt.Errorf("routes[%d].dst: %w", i, err)
		}
		to.Routes = append(to.Routes, Route{Destination: destination, Gateway: toAddr(route.GW)})
	}
	return to, nil
}

func convertIP(from *types100.IPConfig, interfaces []Interface) (IP, error) {
	address, err := toPrefix(from.Address)
	if err != nil {
		return IP{}, fmt.Errorf("address: %w", err)
	}
	if a := address.Addr(); a.IsUnspecified() || a.IsMulticast() {
		return IP{}, fmt.Errorf("address: %s cannot be that of an interface", a)
	}
	ip := IP{Address: address, Gateway: toAddr(from.Gateway)}
	if at := from.Interface; at != nil {
		if *at < 0 || *at >= len(interfaces) {
			return IP{}, fmt.Errorf("interface: number %d does not exist, there are %d", *at, len(interfaces))
		}
		ip.Interface = interfaces[*at].Name
	}
	return ip, nil
}

func toPrefix(subnet net.IPNet) (netip.Prefix, error) {
	ones, bits := subnet.Mask.Size()
	addr := toAddr(subnet.IP)
	if !addr.IsValid() || bits != addr.BitLen() {
		return netip.Prefix{}, errors.New("not an address with a prefix length")
	}
	return netip.PrefixFrom(addr, ones), nil
}

func toAddr(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// Family is an IP address family.
type Family uint8

// The address families.
const (
	IPv4 Family = iota
	IPv6
	AnyFamily // the order of the plugin
)

// podIPs returns the addresses of the interface, or of no interface, except loopback, and the preferred family first.
func podIPs(result *Result, iface string, preferred Family) []netip.Addr {
	var ips []netip.Addr
	for _, ip := range result.IPs {
		if a := ip.Address.Addr(); (ip.Interface == "" || ip.Interface == iface) && !a.IsLoopback() {
			ips = append(ips, a)
		}
	}
	at := slices.IndexFunc(ips, func(a netip.Addr) bool {
		return preferred == AnyFamily || a.Is4() == (preferred == IPv4)
	})
	if at > 0 {
		primary := ips[at]
		ips = slices.Insert(slices.Delete(ips, at, at+1), 0, primary)
	}
	return ips
}
