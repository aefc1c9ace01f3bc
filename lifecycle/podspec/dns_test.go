// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func TestParseResolvConf(t *testing.T) {
	for in, want := range map[string]cri.DNSConfig{
		"":                             {},
		"# nameserver 1.2.3.4\n;x\n\n": {},
		"nameserver 1.2.3.4":           {Servers: []string{"1.2.3.4"}},
		"  nameserver \t 1.2.3.4\r\nnameserver ::1":        {Servers: []string{"1.2.3.4", "::1"}},
		"search a b\nsearch c. . d":                        {Searches: []string{"c", "d"}},
		"search a\nsearch":                                 {},
		"options ndots:1 debug\noptions timeout:2 ndots:3": {Options: []string{"ndots:3", "debug", "timeout:2"}},
	} {
		got, err := podspec.ParseResolvConf([]byte(in))
		require.NoError(t, err)
		assert.Empty(t, cmp.Diff(&want, got), in)
	}
	_, err := podspec.ParseResolvConf([]byte("search a\nnameserver\n"))
	assert.EqualError(t, err, "parse resolv.conf: line 2: nameserver without an address")
	_, err = podspec.ParseResolvConf(make([]byte, 10<<20+1))
	assert.EqualError(t, err, "parse resolv.conf: 10485761 bytes, the limit is 10485760")
}

// fixedDNS returns a function for Options.ResolvConf that returns c.
func fixedDNS(c *cri.DNSConfig) func() (*cri.DNSConfig, error) {
	return func() (*cri.DNSConfig, error) { return c, nil }
}

// The file of the host changes while the node runs: each pod gets its content at that time, or its error.
func TestResolvConfIsReadForEachPod(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	read := func() (*cri.DNSConfig, error) { return podspec.ReadResolvConf(path) }
	options := podspec.Options{ResolvConf: read, ClusterDNS: addrs("10.0.0.10")}
	for _, server := range []string{"192.0.2.1", "192.0.2.2"} {
		require.NoError(t, os.WriteFile(path, []byte("nameserver "+server+"\nsearch corp"+server[8:]+"\n"), 0o600))
		assert.Equal(t, []string{server}, sandbox(t, podtest.Pod(t, "dnsPolicy: Default"), options).DNS.Servers)
		assert.Equal(t, []string{"corp" + server[8:]}, sandbox(t, podtest.Pod(t, ""), options).DNS.Searches)
	}
	wantError := func(text string) {
		t.Helper()
		for _, policy := range []string{"dnsPolicy: Default", ""} {
			_, err := podspec.Sandbox(podtest.Pod(t, policy), 0, options)
			require.ErrorContains(t, err, text)
			require.ErrorContains(t, err, path)
		}
		_, err := podspec.Sandbox(podtest.Pod(t, "{dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.1]}}"), 0, options)
		require.NoError(t, err, "a pod with dnsPolicy None does not need the file")
	}
	require.NoError(t, os.WriteFile(path, []byte("nameserver\n"), 0o600))
	wantError("nameserver without an address")
	require.NoError(t, os.Remove(path))
	wantError("no such file or directory")
	require.NoError(t, os.Mkdir(path, 0o700))
	wantError("is no regular file")
}

func TestDNS(t *testing.T) {
	host := &cri.DNSConfig{Servers: []string{"8.8.8.8"}, Searches: []string{"corp", "svc.cluster.local"}, Options: []string{"ndots:1", "debug"}}
	cluster := podspec.Options{ResolvConf: fixedDNS(host), ClusterDNS: addrs("10.0.0.10"), ClusterDomain: "cluster.local"}
	clusterDNS := &cri.DNSConfig{
		Servers:  []string{"10.0.0.10"},
		Searches: []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local", "corp"},
		Options:  []string{"ndots:5"},
	}
	loopback := podspec.Options{NoResolvConf: true, HostIPs: hostIPs("fd00::1", "10.0.0.1"), ResolvConf: fixedDNS(host)}
	for name, c := range map[string]struct {
		spec    string
		options podspec.Options
		want    *cri.DNSConfig
	}{
		"ClusterFirst":                                {"", cluster, clusterDNS},
		"ClusterFirst on the host network":            {"hostNetwork: true", cluster, host},
		"ClusterFirstWithHostNet on the host network": {"{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet}", cluster, clusterDNS},
		"Default":                      {"dnsPolicy: Default", cluster, host},
		"no cluster DNS":               {"", podspec.Options{ResolvConf: fixedDNS(host)}, host},
		"no options":                   {"", podspec.Options{}, nil},
		"no cluster domain":            {"", podspec.Options{ResolvConf: fixedDNS(host), ClusterDNS: addrs("10.0.0.10")}, &cri.DNSConfig{Servers: []string{"10.0.0.10"}, Searches: host.Searches, Options: []string{"ndots:5"}}},
		"loopback without resolv.conf": {"", loopback, &cri.DNSConfig{Servers: []string{"::1", "127.0.0.1"}, Searches: []string{"."}}},
		"loopback without resolv.conf and node addresses": {"", podspec.Options{NoResolvConf: true}, &cri.DNSConfig{Servers: []string{"127.0.0.1"}, Searches: []string{"."}}},
		"None": {"{dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}}", cluster, &cri.DNSConfig{Servers: []string{"1.1.1.1"}}},
		"Default merged with dnsConfig": {
			"{dnsPolicy: Default, dnsConfig: {nameservers: [1.1.1.1, 8.8.8.8], searches: [corp, x], options: [{name: ndots, value: '2'}, {name: edns0}, {name: debug}]}}",
			cluster,
			&cri.DNSConfig{Servers: []string{"8.8.8.8", "1.1.1.1"}, Searches: []string{"corp", "svc.cluster.local", "x"}, Options: []string{"ndots:2", "debug", "edns0"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Empty(t, cmp.Diff(c.want, sandbox(t, podtest.Pod(t, c.spec), c.options).DNS))
		})
	}
	assert.Equal(t, []string{"corp", "svc.cluster.local"}, host.Searches, "Sandbox does not modify the options")

	_, err := podspec.Sandbox(podtest.Pod(t, "dnsConfig: {searches: [x]}"), 0, podspec.Options{})
	assert.ErrorContains(t, err, "spec.dnsConfig: Forbidden: cannot be merged with the resolv.conf of the node, which is not known")
}

func TestDNSLimits(t *testing.T) {
	host := &cri.DNSConfig{Servers: []string{"1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"}}
	host.Searches = append(host.Searches, strings.Repeat("x", 254))
	for i := range 40 {
		host.Searches = append(host.Searches, strings.Repeat("y", 60)+strconv.Itoa(10+i))
	}
	var reasons []string
	dns := sandbox(t, podtest.Pod(t, "dnsPolicy: Default"), podspec.Options{ResolvConf: fixedDNS(host), Warn: func(p *corev1.Pod, reason, _ string) {
		assert.Equal(t, "web", p.Name)
		reasons = append(reasons, reason)
	}}).DNS
	assert.Len(t, dns.Servers, 3)
	// 32 domains remain, without the one that is too long; 31 times 62 characters with spaces are 1952.
	assert.Len(t, dns.Searches, 31)
	assert.Equal(t, []string{"DNSConfigForming", "DNSConfigForming"}, reasons)

	host.Searches = nil
	for i := range 20 {
		host.Searches = append(host.Searches, strings.Repeat("z", 120)+strconv.Itoa(10+i)) // 122
	}
	dns = sandbox(t, podtest.Pod(t, "dnsPolicy: Default"), podspec.Options{ResolvConf: fixedDNS(host)}).DNS
	assert.Len(t, dns.Searches, 16, "16*122+15 = 1967, one more would be 2090")
	assert.Len(t, host.Searches, 20)
}

func FuzzParseResolvConf(f *testing.F) {
	f.Add([]byte("nameserver 1.1.1.1\nsearch a. . b\noptions a:1 b a:2"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := podspec.ParseResolvConf(data)
		if err != nil {
			return
		}
		// The printed config parses to an equal config: trailing dots are removed and options are unique.
		text := "search " + strings.Join(c.Searches, " ") + "\noptions " + strings.Join(c.Options, " ")
		for _, s := range c.Servers {
			text += "\nnameserver " + s
		}
		again, err := podspec.ParseResolvConf([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, c.Servers, again.Servers)
		assert.Equal(t, c.Options, again.Options)
		assert.LessOrEqual(t, len(again.Searches), len(c.Searches))
	})
}
