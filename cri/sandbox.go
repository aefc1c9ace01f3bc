// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// PodIdentity identifies a pod.
type PodIdentity struct {
	UID       string
	Name      string
	Namespace string
}

// Sandbox is a pod sandbox in the runtime: the namespaces, the network and the cgroup that the containers of a pod share. A
// runtime that implements [Inspector] may omit fields marked "detail" from List.
type Sandbox struct {
	ID             string
	Pod            PodIdentity
	Attempt        uint32 // number of earlier sandboxes of the pod
	State          SandboxState
	CreatedAt      time.Time
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string // empty: the runtime's default

	IPs        []string         // detail: primary address first; none on the host network
	Namespaces NamespaceOptions // detail
}

// SandboxConfig describes a sandbox to run.
type SandboxConfig struct {
	Pod            PodIdentity
	Attempt        uint32
	RuntimeHandler string // empty: the runtime's default

	Hostname     string // empty on the host network
	LogDirectory string // absolute; ContainerConfig.LogPath is relative to it. Empty: no logs
	DNS          *DNSConfig
	Ports        []PortMapping
	Labels       map[string]string
	Annotations  map[string]string

	CgroupParent string // in the syntax of the runtime's CgroupDriver; empty: chosen by the runtime
	Sysctls      map[string]string
	Security     SandboxSecurity
	Overhead     *Resources // resources of the pod beyond those of its containers
	Resources    *Resources // sum over all containers, without Overhead
}

// DNSConfig is the content of a pod's resolv.conf. A nil DNSConfig selects the runtime's default, a copy of the host's file. A
// DNSConfig without servers, searches and options produces an empty file.
type DNSConfig struct {
	Servers  []string
	Searches []string
	Options  []string
}

// Protocol is the transport protocol of a port.
type Protocol uint8

// The transport protocols of a port mapping.
const (
	TCP Protocol = iota
	UDP
	SCTP
)

// String returns "TCP", "UDP" or "SCTP".
func (p Protocol) String() string { return name(p, "TCP", "UDP", "SCTP") }

// PortMapping publishes a sandbox port on the host.
type PortMapping struct {
	Protocol      Protocol
	ContainerPort int32
	HostPort      int32  // zero: not published
	HostIP        string // empty: all addresses
}

// NamespaceMode selects the owner of a Linux namespace.
type NamespaceMode uint8

// The namespace modes.
const (
	NamespacePod       NamespaceMode = iota // shared by the containers of the pod
	NamespaceContainer                      // private to the container
	NamespaceNode                           // the host's namespace
	NamespaceTarget                         // the namespace of the container NamespaceOptions.TargetID
)

// String returns "pod", "container", "node" or "target".
func (m NamespaceMode) String() string { return name(m, "pod", "container", "node", "target") }

// NamespaceOptions selects the namespaces of a sandbox or container. In the zero value, the containers of the pod share all
// namespaces.
type NamespaceOptions struct {
	Network  NamespaceMode
	PID      NamespaceMode
	IPC      NamespaceMode
	TargetID string         // container ID, for PID in mode NamespaceTarget
	User     *UserNamespace // nil: the host's user namespace
}

// UserNamespace maps user and group IDs of a pod to host IDs. Mode NamespacePod creates a user namespace with these mappings;
// NamespaceNode uses the host's and ignores them.
type UserNamespace struct {
	Mode NamespaceMode
	UIDs []IDMapping
	GIDs []IDMapping
}

// IDMapping maps the Length IDs that start at ContainerID to those that start at HostID.
type IDMapping struct {
	HostID      uint32
	ContainerID uint32
	Length      uint32
}

// SandboxSecurity is the security context of a sandbox.
type SandboxSecurity struct {
	Namespaces               NamespaceOptions
	SELinux                  *SELinux
	RunAsUser                *int64 // nil: the runtime's default
	RunAsGroup               *int64 // requires RunAsUser
	ReadonlyRootfs           bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy GroupsPolicy
	Privileged               bool // a container of the pod is privileged
	Seccomp                  *SecurityProfile
	AppArmor                 *SecurityProfile
}

// SELinux is an SELinux label, split into its four parts.
type SELinux struct {
	User, Role, Type, Level string
}

// GroupsPolicy selects the supplemental groups of a container's processes.
type GroupsPolicy uint8

// The policies for supplemental groups.
const (
	GroupsMerge  GroupsPolicy = iota // groups of the config and of the user in the image's /etc/group
	GroupsStrict                     // only groups of the config
)

// String returns "Merge" or "Strict".
func (p GroupsPolicy) String() string { return name(p, "Merge", "Strict") }

// ProfileType is the source of a seccomp or AppArmor profile.
type ProfileType uint8

// The sources of a security profile.
const (
	ProfileRuntimeDefault ProfileType = iota
	ProfileUnconfined
	ProfileLocalhost
)

// String returns "RuntimeDefault", "Unconfined" or "Localhost".
func (t ProfileType) String() string { return name(t, "RuntimeDefault", "Unconfined", "Localhost") }

// SecurityProfile selects a seccomp or AppArmor profile.
type SecurityProfile struct {
	Type         ProfileType
	LocalhostRef string // for ProfileLocalhost: path of a seccomp file, or name of a loaded AppArmor profile
}
