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

// What a result may have of each kind. Real ones have a handful.
const (
	maxInterfaces = 256
	maxIPs        = 256
	maxRoutes     = 1024
	maxDNS        = 64
)

// Result is what an ADD came to.
type Result struct {
	Interfaces []Interface
	IPs        []IP
	Routes     []Route
	DNS        DNS
}

// Interface is a network interface that a plugin has made or used.
type Interface struct {
	Name    string
	MAC     string
	MTU     int    // zero: it was not told
	Sandbox string // the network namespace; empty: that of the host
}

// IP is an address of a container.
type IP struct {
	Interface string       // its name; empty: it was not told
	Address   netip.Prefix // with the length of the subnet's prefix
	Gateway   netip.Addr   // the zero Addr: none
}

// Route is a route of a container.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // the zero Addr: the default one
}

// DNS is the configuration of a resolver.
type DNS struct {
	Servers  []string
	Domain   string
	Searches []string
	Options  []string
}

// checkResult refuses the output of an ADD that is not to be believed, before libcni sees it: entries that are null make
// it crash.
func checkResult(data []byte) error {
	var r struct {
		Interfaces []json.RawMessage `json:"interfaces"`
		IPs        []json.RawMessage `json:"ips"`
		Routes     []json.RawMessage `json:"routes"`
		IP4        *oldIP            `json:"ip4"` // before version 0.3.0
		IP6        *oldIP            `json:"ip6"`
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("it is no JSON object of a result: %w", err)
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
	for _, old := range []*oldIP{r.IP4, r.IP6} {
		if old == nil {
			continue
		}
		if err := checkList("routes", old.Routes, maxRoutes); err != nil {
			return err
		}
	}
	return nil
}

// oldIP is an address with its routes, as results had it before version 0.3.0.
type oldIP struct {
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

// convert translates a result of libcni that has passed checkResult.
func convert(from types.Result) (*Result, error) {
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
		destination, err := prefixOf(route.Dst)
		if err != nil {
			return nil, fmt.Errorf("routes[%d].dst: %w", i, err)
		}
		to.Routes = append(to.Routes, Route{Destination: destination, Gateway: addrOf(route.GW)})
	}
	return to, nil
}

func convertIP(from *types100.IPConfig, interfaces []Interface) (IP, error) {
	address, err := prefixOf(from.Address)
	if err != nil {
		return IP{}, fmt.Errorf("address: %w", err)
	}
	if a := address.Addr(); a.IsUnspecified() || a.IsMulticast() {
		return IP{}, fmt.Errorf("address: %s cannot be that of an interface", a)
	}
	ip := IP{Address: address, Gateway: addrOf(from.Gateway)}
	if at := from.Interface; at != nil {
		if *at < 0 || *at >= len(interfaces) {
			return IP{}, fmt.Errorf("interface: there is no number %d, of %d", *at, len(interfaces))
		}
		ip.Interface = interfaces[*at].Name
	}
	return ip, nil
}

func prefixOf(n net.IPNet) (netip.Prefix, error) {
	ones, bits := n.Mask.Size()
	addr := addrOf(n.IP)
	if !addr.IsValid() || bits != addr.BitLen() {
		return netip.Prefix{}, errors.New("it is no address with the length of a prefix")
	}
	return netip.PrefixFrom(addr, ones), nil
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// Family is a version of the internet protocol.
type Family uint8

// The families of addresses.
const (
	IPv4 Family = iota
	IPv6
	AnyFamily // the order of the plugin counts
)

// podIPs returns the addresses of a pod at its interface: first the first one of the family, then all others in their
// order. An address that is of no interface is taken for one of this interface.
func podIPs(r *Result, iface string, first Family) []netip.Addr {
	var ips []netip.Addr
	for _, ip := range r.IPs {
		if a := ip.Address.Addr(); (ip.Interface == "" || ip.Interface == iface) && !a.IsLoopback() {
			ips = append(ips, a)
		}
	}
	at := slices.IndexFunc(ips, func(a netip.Addr) bool {
		return first == AnyFamily || a.Is4() == (first == IPv4)
	})
	if at > 0 {
		primary := ips[at]
		ips = slices.Insert(slices.Delete(ips, at, at+1), 0, primary)
	}
	return ips
}
