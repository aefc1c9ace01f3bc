// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func TestHostsFile(t *testing.T) {
	const managed = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"
	const aliases = "\n# Entries added by HostAliases.\n1.2.3.4\ta\tb.c\n::2\td\n"
	for name, c := range map[string]struct {
		spec string
		ips  []string
		want string
	}{
		"one address":   {"", []string{"10.0.0.2"}, managed + "10.0.0.2\tweb\n"},
		"two addresses": {"", []string{"10.0.0.2", "fd00::2"}, managed + "10.0.0.2\tweb\nfd00::2\tweb\n"},
		"domain":        {"subdomain: s", []string{"10.0.0.2"}, managed + "10.0.0.2\tweb.s.default.svc.cluster.local\tweb\n"},
		"FQDN":          {"{hostname: h, subdomain: s, setHostnameAsFQDN: true}", []string{"10.0.0.2"}, managed + "10.0.0.2\th.s.default.svc.cluster.local\th\n"},
		"override":      {"{hostnameOverride: a.b, subdomain: s}", []string{"10.0.0.2"}, managed + "10.0.0.2\ta.b\n"},
		"aliases": {
			"hostAliases: [{ip: 1.2.3.4, hostnames: [a, b.c]}, {ip: '::2', hostnames: [d]}]",
			[]string{"10.0.0.2"},
			managed + "10.0.0.2\tweb\n" + aliases,
		},
		"host network": {
			"{hostNetwork: true, hostAliases: [{ip: 1.2.3.4, hostnames: [a, b.c]}, {ip: '::2', hostnames: [d]}]}", nil,
			"# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost node\n" + aliases,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := podspec.HostsFile(podtest.Pod(t, c.spec), c.ips, []byte("127.0.0.1 localhost node\n"), podspec.Options{ClusterDomain: "cluster.local"})
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
	_, err := podspec.HostsFile(podtest.Pod(t, "hostname: a_b"), nil, nil, podspec.Options{})
	assert.ErrorContains(t, err, "spec.hostname: Invalid value")
}

func TestHostsMount(t *testing.T) {
	ips, mount := []string{"10.0.0.2"}, []cri.Mount{{ContainerPath: "/etc/hosts", HostPath: "/pods/u1/etc-hosts"}}
	for name, c := range map[string]struct {
		spec, container string
		ips             []string
		want            []cri.Mount
	}{
		"pod":          {"", "", ips, mount},
		"no address":   {"", "", nil, nil},
		"host network": {"hostNetwork: true", "", nil, mount},
		"volume at /etc/hosts": {
			"volumes: [{name: v}]", "volumeMounts: [{name: v, mountPath: /etc/hosts}]", ips,
			[]cri.Mount{{ContainerPath: "/etc/hosts", HostPath: "/v"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := podspec.Launch{PodIPs: c.ips, HostsPath: "/pods/u1/etc-hosts", Volumes: map[string]podspec.Volume{"v": {HostPath: "/v"}}}
			assert.Equal(t, c.want, container(t, podtest.Pod(t, c.spec, c.container), l, podspec.Options{}).Mounts)
		})
	}

	p := podtest.Pod(t, "hostAliases: [{ip: 1.2.3.4, hostnames: [a]}]")
	_, err := podspec.Container(p, &p.Spec.Containers[0], podspec.Launch{PodIPs: ips}, podspec.Options{})
	assert.EqualError(t, err, "spec.hostAliases: Forbidden: there is no hosts file to add them to")
	assert.Empty(t, container(t, podtest.Pod(t), podspec.Launch{PodIPs: ips}, podspec.Options{}).Mounts)
}

// The hosts file contains neither extra lines from the runtime's addresses nor addresses that no C library can parse.
func TestHostsFileOmitsInvalidAddresses(t *testing.T) {
	got, err := podspec.HostsFile(podtest.Pod(t, ""), []string{"010.0.0.2", "10.0.0.3\n6.6.6.6\tbank", "fd00::0002"}, nil, podspec.Options{})
	require.NoError(t, err)
	assert.Contains(t, string(got), "fe00::2\tip6-allrouters\n10.0.0.2\tweb\nfd00::2\tweb\n")
	assert.NotContains(t, string(got), "bank")
}
