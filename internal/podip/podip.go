// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podip picks the addresses of a pod that are in its status and in the variables of its containers.
package podip

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Addresses returns the addresses of a pod, the primary one first: of those that the runtime knows, in any order and
// number, the first of the family of the node and the first of the other family. What cannot be parsed is left out.
//
// A pod on the network of its host, for which the runtime knows none, keeps those of its status before, and has those of
// the node where there are none. It gets the node's second one where its own is of the other family and the
// only one, as the node may have become dual stack. Source: sortPodIPs and generateAPIPodStatus in
// pkg/kubelet/kubelet_pods.go.
func Addresses(onHost bool, ips []string, before []corev1.PodIP, hostIPs []netip.Addr) []netip.Addr {
	first6 := len(hostIPs) > 0 && hostIPs[0].Is6()
	picked := pick(ips, first6)
	if !onHost {
		return picked
	}
	if len(picked) == 0 {
		for _, ip := range before {
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

// pick returns the first address of one family and the first of the other.
func pick(ips []string, first6 bool) []netip.Addr {
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

// Parse reads an address as the kubelet does, which is not as strict as [netip.ParseAddr]: numbers may begin with
// zeros, as some CNI plugins write them, an IPv4 address in an IPv6 one is an IPv4 address, and there are no zones.
func Parse(text string) (netip.Addr, bool) {
	var b strings.Builder
	digits := 0 // since the number began, without zeros at its beginning
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
