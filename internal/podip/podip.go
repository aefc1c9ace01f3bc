// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podip chooses the IP addresses of a pod for its status and the environment variables of its containers.
package podip

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Addresses returns the IP addresses for the status of a pod, at most one per IP family. ips contains the addresses from the
// runtime in any order; invalid addresses are ignored. If possible, the first result is of the primary family of the node,
// which is the family of hostIPs[0].
//
// A pod with host network keeps its previous addresses if ips is empty, and gets hostIPs[0] if it has none. If it then has
// one address, it also gets hostIPs[1] if that is of the other family, because the node may have become dual stack. Source:
// sortPodIPs and generateAPIPodStatus in pkg/kubelet/kubelet_pods.go.
func Addresses(hostNetwork bool, ips []string, previous []corev1.PodIP, hostIPs []netip.Addr) []netip.Addr {
	first6 := len(hostIPs) > 0 && hostIPs[0].Is6()
	picked := pickPerFamily(ips, first6)
	if !hostNetwork {
		return picked
	}
	if len(picked) == 0 {
		for _, ip := range previous {
			if addr, ok := Parse(ip.IP); ok && len(picked) < 2 {
				picked = append(picked, addr)
			}
		}
	}
	if len(picked) == 0 && len(hostIPs) > 0 {
		picked = append(picked, hostIPs[0])
	}
	if len(picked) == 1 && len(hostIPs) > 1 && hostIPs[1].Is6() != picked[0].Is6() {
		picked = append(picked, hostIPs[1])
	}
	return picked
}

// pickPerFamily returns the first valid IPv4 address and the first IPv6 address, the latter first if first6 is true.
func pickPerFamily(ips []string, first6 bool) []netip.Addr {
	var picked []netip.Addr
	for _, is6 := range [...]bool{first6, !first6} {
		for _, text := range ips {
			if ip, ok := Parse(text); ok && ip.Is6() == is6 {
				picked = append(picked, ip)
				break
			}
		}
	}
	return picked
}

// Parse parses an IP address as the kubelet does: unlike [netip.ParseAddr], it permits leading zeros, which some CNI plugins
// write, and converts an IPv4-mapped address to IPv4. It returns false for an address that is invalid or has a zone.
func Parse(text string) (netip.Addr, bool) {
	var b strings.Builder
	digits := 0 // of the current number, without leading zeros
	for i := range len(text) {
		if !isHex(text[i]) {
			digits = 0
		} else if text[i] == '0' && digits == 0 && i+1 < len(text) && isHex(text[i+1]) {
			continue
		} else {
			digits++
		}
		b.WriteByte(text[i])
	}
	ip, err := netip.ParseAddr(b.String())
	return ip.Unmap(), err == nil && ip.Zone() == ""
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
