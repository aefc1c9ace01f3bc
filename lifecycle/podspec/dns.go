// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

const maxResolvConf = 10 << 20 // bytes

// ReadResolvConf reads the resolv.conf(5) file at path. It returns an error if the file is no regular file or larger than 10 MiB. A missing file
// is an error that wraps [fs.ErrNotExist].
func ReadResolvConf(path string) (*cri.DNSConfig, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would wait for its writer
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: is no regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxResolvConf+1))
	if err != nil {
		return nil, err
	}
	dns, err := ParseResolvConf(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return dns, nil
}

// ParseResolvConf parses the content of a resolv.conf(5) file: all name servers, the last list of search domains, and the
// last value of each option. The search domain "." and trailing dots are removed. Comments and unknown keywords are skipped.
// A nameserver line without an address is an error.
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

// resolverOptions is a list of resolver options without duplicate names, in the order of their first occurrence.
type resolverOptions struct {
	list  []string
	index map[string]int
}

// setOption adds a resolver option such as "ndots:5". If there is an option of this name, setOption replaces it.
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

// podDNS returns the resolv.conf of a pod. It returns nil if the resolv.conf of the node is unknown, so that the runtime
// chooses one.
func podDNS(pod *corev1.Pod, opts Options) (*cri.DNSConfig, error) {
	dns, err := baseDNS(pod, opts)
	if err != nil {
		return nil, err
	}
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
		limitDNS(pod, dns, opts)
	}
	return dns, nil
}

// baseDNS returns the resolv.conf for the DNS policy of the pod, without its dnsConfig. nil leaves it to the runtime.
func baseDNS(pod *corev1.Pod, opts Options) (*cri.DNSConfig, error) {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSNone {
		return &cri.DNSConfig{}, nil
	}
	if policy == corev1.DNSClusterFirstWithHostNet || policy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork {
		if len(opts.ClusterDNS) > 0 {
			return clusterDNS(pod, opts)
		}
		opts.recordWarning(pod, "MissingClusterDNS", fmt.Sprintf("no cluster DNS is configured, policy %s falls back to %s", policy, corev1.DNSDefault))
	}
	if opts.NoResolvConf {
		return &cri.DNSConfig{Servers: loopbackServers(opts.NodeIPs()), Searches: []string{"."}}, nil
	}
	return opts.hostDNS()
}

// hostDNS returns a copy of the resolv.conf of the host, or nil if the runtime chooses it.
func (o Options) hostDNS() (*cri.DNSConfig, error) {
	if o.ResolvConf == nil {
		return nil, nil //nolint:nilnil // documented
	}
	host, err := o.ResolvConf()
	if err != nil || host == nil {
		return nil, err
	}
	return &cri.DNSConfig{Servers: slices.Clone(host.Servers), Searches: slices.Clone(host.Searches), Options: slices.Clone(host.Options)}, nil
}

// clusterDNS returns a resolv.conf with the DNS servers and search domains of the cluster, followed by the search domains of
// the node.
func clusterDNS(pod *corev1.Pod, opts Options) (*cri.DNSConfig, error) {
	dns := &cri.DNSConfig{Options: []string{"ndots:5"}}
	for _, ip := range opts.ClusterDNS {
		dns.Servers = append(dns.Servers, ip.String())
	}
	var host []string
	if !opts.NoResolvConf {
		file, err := opts.hostDNS()
		if err != nil {
			return nil, err
		}
		if file != nil {
			host = file.Searches
		}
	}
	dns.Searches = host
	if d := opts.ClusterDomain; d != "" {
		dns.Searches = removeDuplicates(append([]string{pod.Namespace + ".svc." + d, "svc." + d, d}, host...))
	}
	return dns, nil
}

// loopbackServers returns a loopback address for each node IP, in its IP family. If there are no node IPs, it returns
// 127.0.0.1.
func loopbackServers(nodeIPs []netip.Addr) []string {
	var servers []string
	for _, ip := range nodeIPs {
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

// mergeOptions returns the resolver options in base, added to or replaced by those of the pod's dnsConfig.
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

// limitDNS removes name servers and search domains that exceed the limits of resolvers. If it removes any, it calls
// Options.Warn.
func limitDNS(pod *corev1.Pod, dns *cri.DNSConfig, opts Options) {
	if len(dns.Servers) > podfield.MaxNameservers {
		dns.Servers = dns.Servers[:podfield.MaxNameservers]
		opts.recordWarning(pod, "DNSConfigForming", "too many name servers, used are "+strings.Join(dns.Servers, " "))
	}
	all := len(dns.Searches)
	dns.Searches = dns.Searches[:min(all, podfield.MaxSearches)]
	// A longer name makes glibc 2.28 abort the process.
	dns.Searches = slices.DeleteFunc(dns.Searches, func(s string) bool {
		return len(s) > validation.DNS1123SubdomainMaxLength
	})
	for len(strings.Join(dns.Searches, " ")) > podfield.MaxSearchChars {
		dns.Searches = dns.Searches[:len(dns.Searches)-1]
	}
	if len(dns.Searches) < all {
		opts.recordWarning(pod, "DNSConfigForming", "search domains exceed the limits, used are "+strings.Join(dns.Searches, " "))
	}
}

// removeDuplicates returns the list without repetitions of a string. It changes the list in place.
func removeDuplicates(list []string) []string {
	seen := make(map[string]struct{}, len(list))
	return slices.DeleteFunc(list, func(s string) bool {
		n := len(seen)
		seen[s] = struct{}{}
		return len(seen) == n
	})
}
