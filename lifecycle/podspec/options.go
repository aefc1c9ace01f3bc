// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// The defaults of [Options], as in the kubelet's configuration.
const (
	DefaultLogRoot     = "/var/log/pods"
	DefaultSeccompRoot = "/var/lib/kubelet/seccomp"
)

// Options is what holds for every pod of a node. The zero value is a node without cluster DNS whose pods resolve
// names as the host does.
type Options struct {
	HostIPs []netip.Addr // of the node: one, or one of each family with the preferred one first

	LogRoot        string // parent of the pods' log directories; empty: DefaultLogRoot
	SeccompRoot    string // where Localhost seccomp profiles lie; empty: DefaultSeccompRoot
	SeccompDefault bool   // containers without a seccomp profile get the runtime's, not none

	ClusterDNS    []netip.Addr   // servers for pods of policy ClusterFirst; none: they get the host's
	ClusterDomain string         // such as "cluster.local"; empty: no search domains of the cluster
	ResolvConf    *cri.DNSConfig // of the host, from ParseResolvConf; nil: left to the runtime
	NoResolvConf  bool           // pods resolve at their own loopback, as with the kubelet's resolvConf ""

	// CgroupParent names the cgroup of a pod in the form of the runtime's driver; nil leaves it to the runtime.
	CgroupParent func(pod *corev1.Pod) string
	// RuntimeClasses maps spec.runtimeClassName to a handler of the runtime. A pod with a class that is not in it
	// is an error.
	RuntimeClasses map[string]string

	// Node is how the resources of a pod become those of its containers. Nil is a node of which nothing is known:
	// containers get their shares, quota and limits, but no OOM score, no swap limit and no memory QoS.
	Node *qos.Node

	Allocatable corev1.ResourceList // stands in for limits that a resourceFieldRef asks for and the container lacks
	MaskedPaths []string            // beside the usual ones: the kubelet adds each CPU's thermal_throttle in /sys

	// Warn is told what is worth an event and yet no error; nil discards it. Reasons are those of the kubelet's events
	// where it has one: "DNSConfigForming" and "MissingClusterDNS".
	Warn func(pod *corev1.Pod, reason, message string)
}

func (o Options) warn(pod *corev1.Pod, reason, message string) {
	if o.Warn != nil {
		o.Warn(pod, reason, message)
	}
}
