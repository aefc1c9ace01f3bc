// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

const maxResolvConf = 10 << 20 // bytes

// ParseResolvConf reads a resolv.conf(5). Name servers add up, the last search line counts, and of an option the last
// value. The search domain "." is dropped and trailing dots are cut, so that a domain counts once however it is
// written. Lines with other keywords and comments are skipped; a name server line without an address is an error.
func ParseResolvConf(data []byte) (*cri.DNSConfig, error) {
	if len(data) > maxResolvConf {
		return nil, fmt.Errorf("parse resolv.conf: %d bytes, the limit is %d", len(data), maxResolvConf)
	}
	c := &cri.DNSConfig{}
	var options resolverOptions
	n := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		switch words[0] {
		case "nameserver":
			if len(words) < 2 {
				return nil, fmt.Errorf("parse resolv.conf: line %d: nameserver without an address", n)
			}
			c.Servers = append(c.Servers, words[1])
		case "search":
			c.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					c.Searches = append(c.Searches, strings.TrimSuffix(s, "."))
				}
			}
		case "options":
			for _, w := range words[1:] {
				options.setOption(w)
			}
		}
	}
	c.Options = options.list
	return c, nil
}

// options is a list of resolver options in which each name occurs once, where it was first set.
type resolverOptions struct {
	list  []string
	index map[string]int
}

func (o *resolverOptions) setOption(option string) {
	name, _, _ := strings.Cut(option, ":")
	if i, ok := o.index[name]; ok {
		o.list[i] = option
		return
	}
	if o.index == nil {
		o.index = make(map[string]int)
	}
	o.index[name] = len(o.list)
	o.list = append(o.list, option)
}

// podDNS returns the resolv.conf of a pod, nil where it is left to the runtime.
func podDNS(pod *corev1.Pod, o Options) (*cri.DNSConfig, error) {
	dns := baseDNS(pod, o)
	if extra := pod.Spec.DNSConfig; extra != nil {
		if dns == nil {
			return nil, field.Forbidden(field.NewPath("spec", "dnsConfig"),
				"cannot be merged with the resolv.conf of the node, which is not known")
		}
		dns.Servers = removeDuplicates(append(dns.Servers, extra.Nameservers...))
		dns.Searches = removeDuplicates(append(dns.Searches, extra.Searches...))
		dns.Options = mergeOptions(dns.Options, extra.Options)
	}
	if dns != nil {
		limitDNS(pod, dns, o)
	}
	return dns, nil
}

// baseDNS returns what the DNS policy alone gives. The result is the caller's to change.
func baseDNS(pod *corev1.Pod, o Options) *cri.DNSConfig {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSNone {
		return &cri.DNSConfig{}
	}
	if policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork {
		if len(o.ClusterDNS) > 0 {
			return clusterDNS(pod, o)
		}
		o.recordWarning(pod, "MissingClusterDNS", fmt.Sprintf("no cluster DNS is configured, policy %s falls back to %s", policy, corev1.DNSDefault))
	}
	if o.NoResolvConf {
		return &cri.DNSConfig{Servers: loopbackServers(o.NodeIPs()), Searches: []string{"."}}
	}
	if o.ResolvConf == nil {
		return nil
	}
	return &cri.DNSConfig{
		Servers:  slices.Clone(o.ResolvConf.Servers),
		Searches: slices.Clone(o.ResolvConf.Searches),
		Options:  slices.Clone(o.ResolvConf.Options),
	}
}

func clusterDNS(pod *corev1.Pod, o Options) *cri.DNSConfig {
	dns := &cri.DNSConfig{Options: []string{"ndots:5"}}
	for _, ip := range o.ClusterDNS {
		dns.Servers = append(dns.Servers, ip.String())
	}
	var host []string
	if o.ResolvConf != nil && !o.NoResolvConf {
		host = slices.Clone(o.ResolvConf.Searches)
	}
	dns.Searches = host
	if d := o.ClusterDomain; d != "" {
		dns.Searches = removeDuplicates(append([]string{pod.Namespace + ".svc." + d, "svc." + d, d}, host...))
	}
	return dns
}

func loopbackServers(ips []netip.Addr) []string {
	var servers []string
	for _, ip := range ips {
		if ip.Unmap().Is6() {
			servers = append(servers, "::1")
		} else {
			servers = append(servers, "127.0.0.1")
		}
	}
	if servers == nil {
		return []string{"127.0.0.1"}
	}
	return servers
}

func mergeOptions(base []string, extra []corev1.PodDNSConfigOption) []string {
	var merged resolverOptions
	for _, option := range base {
		merged.setOption(strings.TrimSuffix(option, ":"))
	}
	for _, e := range extra {
		if e.Value != nil && *e.Value != "" {
			merged.setOption(e.Name + ":" + *e.Value)
		} else {
			merged.setOption(e.Name)
		}
	}
	return merged.list
}

// limitDNS drops what a resolver would not take and warns about it.
func limitDNS(pod *corev1.Pod, dns *cri.DNSConfig, o Options) {
	if len(dns.Servers) > podfield.MaxNameservers {
		dns.Servers = dns.Servers[:podfield.MaxNameservers]
		o.recordWarning(pod, "DNSConfigForming", "too many name servers, used are "+strings.Join(dns.Servers, " "))
	}
	all := len(dns.Searches)
	dns.Searches = dns.Searches[:min(all, podfield.MaxSearches)]
	// A longer name makes some resolvers abort the process (glibc 2.28).
	dns.Searches = slices.DeleteFunc(dns.Searches, func(s string) bool {
		return len(s) > validation.DNS1123SubdomainMaxLength
	})
	for len(strings.Join(dns.Searches, " ")) > podfield.MaxSearchChars {
		dns.Searches = dns.Searches[:len(dns.Searches)-1]
	}
	if len(dns.Searches) < all {
		o.recordWarning(pod, "DNSConfigForming", "search domains exceed the limits, used are "+strings.Join(dns.Searches, " "))
	}
}

// unique drops repeated strings; the first of each stays.
func removeDuplicates(list []string) []string {
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		n := len(seen)
		seen[s] = struct{}{}
		return len(seen) == n
	})
}
