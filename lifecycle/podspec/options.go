// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// Directories as in the kubelet's configuration. Only that of seccomp profiles, which is read and not written, is a
// default of [Options]; logs have to be asked for.
const (
	DefaultLogRoot     = "/var/log/pods"
	DefaultSeccompRoot = "/var/lib/kubelet/seccomp"
)

// Options is what holds for every pod of a node. The zero value is a node without cluster DNS whose pods resolve
// names as the host does.
type Options struct {
	// HostIPs are those of the node: one, or one of each family with the preferred one first. Without them pods on its
	// network have no address, and no probe reaches them over it that does not name a host. With package process, where
	// all pods are on it, 127.0.0.1 will do.
	HostIPs []netip.Addr

	// LogRoot is the parent of the pods' log directories, absolute. Empty: the output of containers is not kept, and
	// nothing is written. DefaultLogRoot is where the tools of a node look.
	LogRoot        string
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
	// Handlers is what the handlers of the runtime can do, from [cri.StatusReporter]. One that is not in it can do
	// nothing special.
	Handlers []cri.RuntimeHandler
	SELinux  bool // the node enforces it: files that are mounted get the label of the container

	// UserNamespace returns the IDs that the root of a pod and the others are on the host, for pods with hostUsers
	// false. It is asked for the sandbox and for each container, and gives a pod the same range every time and no
	// other pod an overlapping one. Nil is a node without user namespaces.
	UserNamespace func(pod *corev1.Pod) (cri.IDMapping, error)
	// VolumeGroups returns the supplemental groups that the volumes of a pod ask for. Nil: none.
	VolumeGroups func(pod *corev1.Pod) []int64

	// Node is how the resources of a pod become those of its containers. Nil is a node of which nothing is known:
	// containers get their shares, quota and limits, but no OOM score, no swap limit and no memory QoS.
	Node *qos.Node

	Allocatable corev1.ResourceList // stands in for limits that a resourceFieldRef asks for and the container lacks
	MaskedPaths []string            // beside the usual ones: the kubelet adds each CPU's thermal_throttle in /sys

	// Warn is called for what makes an event and yet no error; nil discards it. Reasons are those of the kubelet's events
	// where it has one: "DNSConfigForming" and "MissingClusterDNS".
	Warn func(pod *corev1.Pod, reason, message string)
}

// handler returns what the runtime handler of a pod can do.
func (o Options) handler(pod *corev1.Pod) (cri.RuntimeHandler, error) {
	name, err := runtimeHandler(pod, o)
	if err != nil {
		return cri.RuntimeHandler{}, err
	}
	for _, h := range o.Handlers {
		if h.Name == name {
			return h, nil
		}
	}
	return cri.RuntimeHandler{Name: name}, nil
}

func (o Options) volumeGroups(pod *corev1.Pod) []int64 {
	if o.VolumeGroups == nil {
		return nil
	}
	return o.VolumeGroups(pod)
}

func (o Options) warn(pod *corev1.Pod, reason, message string) {
	if o.Warn != nil {
		o.Warn(pod, reason, message)
	}
}
