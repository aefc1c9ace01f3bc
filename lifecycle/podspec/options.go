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

// Directories of the kubelet. Only the seccomp directory, which is read and never written, is a default of [Options].
const (
	DefaultLogRoot     = "/var/log/pods"
	DefaultLogLinks    = "/var/log/containers" // symbolic links to container logs for log collectors, for lifecycle.Dirs.LogLinks
	defaultSeccompRoot = "/var/lib/kubelet/seccomp"
)

// Options has the settings of the node, which apply to all pods. With the zero value, the node has no cluster DNS, and pods
// resolve names like the host. The functions may be called for each config and status, from several goroutines, and must not
// block.
type Options struct {
	// HostIPs returns the IP addresses of the node, at most one of each IP family, the preferred family first. Nil or no address:
	// pods on the host network have no address. For package process 127.0.0.1 is sufficient.
	HostIPs func() []netip.Addr

	// LogRoot is the absolute path of the directory that contains the log directories of the pods, usually DefaultLogRoot. Empty:
	// the output of containers is discarded.
	LogRoot        string
	SeccompRoot    string // directory of the seccomp profiles of type Localhost; empty: defaultSeccompRoot
	SeccompDefault bool   // containers without a seccomp profile get the default profile of the runtime; false: they get none

	ClusterDNS    []netip.Addr // DNS servers for pods with policy ClusterFirst; empty: such pods use the DNS servers of the host
	ClusterDomain string       // such as "cluster.local"; empty: pods have no search domains of the cluster
	// ResolvConf returns the resolv.conf of the host, for example with ReadResolvConf. Sandbox calls it for each pod that uses the file, because
	// the file changes while the node runs. An error is that of the pod. A nil function or result: the runtime chooses the file.
	ResolvConf   func() (*cri.DNSConfig, error)
	NoResolvConf bool // pods use a name server on their loopback address, as with an empty resolvConf in the kubelet's config

	// CgroupParent returns the cgroup of a pod in the format of the runtime's cgroup driver. Nil: the runtime chooses it.
	CgroupParent func(pod *corev1.Pod) string
	// RuntimeClasses returns the runtime handler of the runtime class called class. If ok is false, the class does not exist, and
	// a pod of this class cannot run. Nil: no class exists.
	RuntimeClasses func(class string) (handler string, ok bool)
	// RuntimeHandlers returns the handlers of the runtime with their features, from [cri.StatusReporter]. A handler that is not
	// in the result has no features. Nil: no handler has features.
	RuntimeHandlers func() []cri.RuntimeHandler
	SELinux         bool // the node enforces SELinux, so that mounted files are relabeled for the container

	// UserNamespace returns the ID mapping of a pod with hostUsers false. It must return an equal mapping at each call for a pod,
	// and the mappings of two pods must not overlap. Nil: user namespaces are not supported.
	UserNamespace func(pod *corev1.Pod) (cri.IDMapping, error)
	// VolumeGroups returns the supplemental groups that the volumes of a pod require. Nil: none.
	VolumeGroups func(pod *corev1.Pod) []int64

	// Node has the capacity and settings of the node for container resources. Nil: containers have CPU shares, CPU quota and
	// memory limits, but no OOM score adjustment, swap limit or memory QoS.
	Node *qos.Node

	// Allocatable returns the allocatable resources of the node, which the caller does not change. If a resourceFieldRef refers
	// to a limit that is not set, the variable has the allocatable amount. Nil: such a variable is 0.
	Allocatable func() corev1.ResourceList
	MaskedPaths []string // additional paths to hide in containers: the kubelet adds thermal_throttle of each CPU in /sys; nil: none

	// Warn is called for each warning about a pod, to record an event. reason is that of the kubelet, if the kubelet has this
	// warning: "DNSConfigForming" or "MissingClusterDNS". Nil: warnings are discarded.
	Warn func(pod *corev1.Pod, reason, message string)
}

// NodeIPs returns the valid addresses in the result of HostIPs, or nil if HostIPs is nil.
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

// allocatableResources returns the result of Allocatable(), or nil if Allocatable is nil.
func (o Options) allocatableResources() corev1.ResourceList {
	if o.Allocatable == nil {
		return nil
	}
	return o.Allocatable()
}

// runtimeHandlerOf returns the runtime handler of the pod's runtime class. Its features come from Options.RuntimeHandlers.
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
	return cri.RuntimeHandler{Name: name}, nil // a handler that is not listed has no features
}

// volumeGroups returns the result of VolumeGroups(pod), or nil if VolumeGroups is nil.
func (o Options) volumeGroups(pod *corev1.Pod) []int64 {
	if o.VolumeGroups == nil {
		return nil
	}
	return o.VolumeGroups(pod)
}

// recordWarning calls Options.Warn, unless that is nil.
func (o Options) recordWarning(pod *corev1.Pod, reason, message string) {
	if o.Warn != nil {
		o.Warn(pod, reason, message)
	}
}
