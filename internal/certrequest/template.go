// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certrequest

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Prefix of the user name and group of a node, as the node authorizer of the API server requires them.
const (
	UserPrefix = "system:node:"
	NodesGroup = "system:nodes"
)

// Template holds the names that a certificate must have. The certificate may have further names.
type Template struct {
	CommonName   string
	Organization []string
	DNSNames     []string     // sorted and unique
	IPs          []netip.Addr // sorted by text and unique; IPv4 addresses are not in IPv6 form
}

// ClientTemplate returns the names for the client certificate of a node: the user system:node:NAME and the group system:nodes.
func ClientTemplate(node string) Template {
	return Template{CommonName: UserPrefix + node, Organization: []string{NodesGroup}}
}

// ServingTemplate returns the names and IP addresses for the serving certificate of a node with these addresses. If no address
// is an IP address, hasIP is false. The caller must then not request a certificate, as in the kubelet.
func ServingTemplate(node string, addresses []corev1.NodeAddress) (names Template, hasIP bool) {
	t := ClientTemplate(node)
	for _, a := range addresses {
		ip, isIP := parseIP(a.Address)
		switch a.Type {
		case corev1.NodeHostName:
			if !isIP {
				t.DNSNames = append(t.DNSNames, a.Address)
			}
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
		case corev1.NodeInternalDNS, corev1.NodeExternalDNS:
			isIP = false
			t.DNSNames = append(t.DNSNames, a.Address)
		default:
			isIP = false
		}
		if isIP {
			t.IPs = append(t.IPs, ip)
		}
	}
	t.DNSNames = slices.DeleteFunc(t.DNSNames, func(name string) bool { return name == "" })
	slices.Sort(t.DNSNames)
	t.DNSNames = slices.Compact(t.DNSNames)
	slices.SortFunc(t.IPs, func(a, b netip.Addr) int { return strings.Compare(a.String(), b.String()) })
	t.IPs = slices.Compact(t.IPs)
	return t, len(t.IPs) > 0
}

// parseIP parses an IP address. It accepts leading zeros in decimal numbers, as Kubernetes does: 010.0.0.1 is 10.0.0.1.
func parseIP(text string) (ip netip.Addr, ok bool) {
	if at := strings.LastIndexByte(text, ':') + 1; strings.Contains(text[at:], ".") {
		parts := strings.Split(text[at:], ".")
		for i, part := range parts {
			if short := strings.TrimLeft(part, "0"); part != "" {
				parts[i] = short
				if short == "" {
					parts[i] = "0"
				}
			}
		}
		text = text[:at] + strings.Join(parts, ".")
	}
	ip, err := netip.ParseAddr(text)
	return ip.Unmap(), err == nil && ip.Zone() == ""
}

// Equal reports whether both templates have the same names.
func (t Template) Equal(other Template) bool {
	return t.CommonName == other.CommonName && slices.Equal(t.Organization, other.Organization) &&
		slices.Equal(t.DNSNames, other.DNSNames) && slices.Equal(t.IPs, other.IPs)
}

// Missing returns a text for the log with the first name of t that the certificate leaf does not have. It returns "" if the
// certificate has all names.
func (t Template) Missing(leaf *x509.Certificate) string {
	if t.CommonName != leaf.Subject.CommonName {
		return fmt.Sprintf("common name %q, not %q", t.CommonName, leaf.Subject.CommonName)
	}
	for _, name := range t.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			return fmt.Sprintf("DNS name %q", name)
		}
	}
	for _, ip := range t.IPs {
		if !slices.ContainsFunc(leaf.IPAddresses, func(have net.IP) bool { return have.Equal(ip.AsSlice()) }) {
			return fmt.Sprintf("IP address %s", ip)
		}
	}
	for _, o := range t.Organization {
		if !slices.Contains(leaf.Subject.Organization, o) {
			return fmt.Sprintf("organization %q", o)
		}
	}
	return ""
}
