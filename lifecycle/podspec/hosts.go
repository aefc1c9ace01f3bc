// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podip"
)

// hostsPath is where the C library of a container looks for names before it asks a server.
const hostsPath = "/etc/hosts"

// HostsFile returns the content of the hosts file of a pod, which its containers find at /etc/hosts if [Launch].HostsPath
// is its path. IPs are those of the sandbox, the primary one first; one that cannot be read is left out. Node is the hosts
// file of the node, which a pod on the host's network gets; any other pod gets one with its own name. The host aliases of
// the pod follow. The kubelet gives the file mode 0644 and writes it anew for each container (kubelet_pods.go,
// ensureHostsFile).
func HostsFile(pod *corev1.Pod, ips []string, node []byte, o Options) ([]byte, error) {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node)
	} else {
		host, domain, err := hostAndDomain(pod, o)
		if err != nil {
			return nil, err
		}
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		names := host
		if domain != "" {
			names = host + "." + domain + "\t" + host
		}
		for _, ip := range ips {
			if addr, ok := podip.Parse(ip); ok {
				fmt.Fprintf(&b, "%s\t%s\n", addr, names)
			}
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
	return b.Bytes(), nil
}

// hostsMount returns the mount of the pod's hosts file. A container that mounts something of its own there has none,
// nor has one without an address.
func hostsMount(pod *corev1.Pod, c *corev1.Container, l Launch, o Options) (cri.Mount, bool) {
	for _, m := range c.VolumeMounts {
		if m.MountPath == hostsPath {
			return cri.Mount{}, false
		}
	}
	m := cri.Mount{ContainerPath: hostsPath, HostPath: l.HostsPath, SELinuxRelabel: o.SELinux}
	return m, len(l.PodIPs) > 0 || pod.Spec.HostNetwork
}
