// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// Directories as in the kubelet's configuration. Only that of seccomp profiles, which is read and not written, is a
// default of [Options]; logs have to be asked for, and so have links to them.
const (
	DefaultLogRoot     = "/var/log/pods"
	DefaultLogLinks    = "/var/log/containers" // where log collectors look, for lifecycle.Dirs.LogLinks
	defaultSeccompRoot = "/var/lib/kubelet/seccomp"
)

// Options is what holds for every pod of a node. The zero value is a node without cluster DNS whose pods resolve
// names as the host does. What may change while the agent runs is a func: each is called for every config and status,
// from several goroutines, and must not block.
type Options struct {
	// HostIPs returns those of the node: one, or one of each family with the preferred one first. Nil or none: pods on its
	// network have no address, and probes reach only those that name a host. For package process 127.0.0.1 will do.
	HostIPs func() []netip.Addr

	// LogRoot is the parent of the pods' log directories, absolute. Empty: the output of containers is not kept, and
	// nothing is written. DefaultLogRoot is where the tools of a node look.
	LogRoot        string
	SeccompRoot    string // where Localhost seccomp profiles lie; empty: defaultSeccompRoot
	SeccompDefault bool   // containers without a seccomp profile get the runtime's, not none

	ClusterDNS    []netip.Addr   // servers for pods of policy ClusterFirst; none: they get the host's
	ClusterDomain string         // such as "cluster.local"; empty: no search domains of the cluster
	ResolvConf    *cri.DNSConfig // of the host, from ParseResolvConf; nil: left to the runtime
	NoResolvConf  bool           // pods resolve at their own loopback, as with the kubelet's resolvConf ""

	// CgroupParent names the cgroup of a pod in the form of the runtime's driver; nil leaves it to the runtime.
	CgroupParent func(pod *corev1.Pod) string
	// RuntimeClasses returns the handler of the runtime for a spec.runtimeClassName, if there is one: without, the pod is
	// an error. Nil: there are no classes.
	RuntimeClasses func(class string) (handler string, ok bool)
	// Handlers returns the features of the runtime's handlers, from [cri.StatusReporter]. Nil, or a handler that is not
	// among them: it has none.
	RuntimeHandlers func() []cri.RuntimeHandler
	SELinux         bool // the node enforces it: files that are mounted get the label of the container

	// UserNamespace returns the IDs on the host of a pod with hostUsers false: the same range every time, and none that
	// overlaps another pod's. Nil is a node without user namespaces.
	UserNamespace func(pod *corev1.Pod) (cri.IDMapping, error)
	// VolumeGroups returns the supplemental groups that the volumes of a pod ask for. Nil: none.
	VolumeGroups func(pod *corev1.Pod) []int64

	// Node is how the resources of a pod become those of its containers. Nil is a node of which nothing is known:
	// containers get their shares, quota and limits, but no OOM score, no swap limit and no memory QoS.
	Node *qos.Node

	// Allocatable returns the allocatable resources of the node, which is not changed: an environment variable with a
	// resourceFieldRef to a limit that the container lacks gets them. Nil: such a variable is 0.
	Allocatable func() corev1.ResourceList
	MaskedPaths []string // beside the usual ones: the kubelet adds each CPU's thermal_throttle in /sys; nil: none

	// Warn is called for what makes an event and yet no error; nil discards it. Reasons are those of the kubelet's events
	// where it has one: "DNSConfigForming" and "MissingClusterDNS".
	Warn func(pod *corev1.Pod, reason, message string)
}

// NodeIPs returns the addresses that HostIPs returns, without those that are invalid, or none where it is nil.
func (o Options) NodeIPs() []netip.Addr {
	if o.HostIPs == nil {
		return nil
	}
	ips := o.HostIPs()
	invalid := func(ip netip.Addr) bool { return !ip.IsValid() }
	if slices.ContainsFunc(ips, invalid) {
		ips = slices.DeleteFunc(slices.Clone(ips), invalid)
	}
	return ips
}

// allocatable returns the resources that Allocatable returns, or none where it is nil.
func (o Options) allocatableResources() corev1.ResourceList {
	if o.Allocatable == nil {
		return nil
	}
	return o.Allocatable()
}

// handler returns the features of the runtime handler of a pod.
func (o Options) runtimeHandlerOf(pod *corev1.Pod) (cri.RuntimeHandler, error) {
	name, err := runtimeHandler(pod, o)
	if err != nil {
		return cri.RuntimeHandler{}, err
	}
	if o.RuntimeHandlers != nil {
		for _, h := range o.RuntimeHandlers() {
			if h.Name == name {
				return h, nil
			}
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

func (o Options) recordWarning(pod *corev1.Pod, reason, message string) {
	if o.Warn != nil {
		o.Warn(pod, reason, message)
	}
}
