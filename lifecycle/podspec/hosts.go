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

// hostsPath is the path of the hosts file in containers.
const hostsPath = "/etc/hosts"

// HostsFile returns the content of /etc/hosts for the containers of a pod, see [Launch].HostsPath: the standard entries, the
// host name for each valid pod address in ips, and the host aliases. On the host network, node, the hosts file of the node,
// replaces all but the aliases. Source: ensureHostsFile in pkg/kubelet/kubelet_pods.go, which writes the file with mode
// 0644.
func HostsFile(pod *corev1.Pod, ips []string, node []byte, opts Options) ([]byte, error) {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.Write(node)
	} else {
		host, domain, err := hostAndDomain(pod, opts)
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

// hostsMount returns the mount of the pod's hosts file. ok is false without a pod IP, or if a volume is mounted there.
func hostsMount(pod *corev1.Pod, container *corev1.Container, launch Launch, opts Options) (mount cri.Mount, ok bool) {
	for _, m := range container.VolumeMounts {
		if m.MountPath == hostsPath {
			return cri.Mount{}, false
		}
	}
	m := cri.Mount{ContainerPath: hostsPath, HostPath: launch.HostsPath, SELinuxRelabel: opts.SELinux}
	return m, len(launch.PodIPs) > 0 || pod.Spec.HostNetwork
}
