// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// PodIdentity says which pod something belongs to.
type PodIdentity struct {
	UID       string
	Name      string
	Namespace string
}

// Sandbox is the frame of a pod as the runtime has it: namespaces, network, cgroup.
type Sandbox struct {
	ID             string
	Pod            PodIdentity
	Attempt        uint32 // how many sandboxes the pod had before
	State          SandboxState
	CreatedAt      time.Time
	Labels         map[string]string
	Annotations    map[string]string
	RuntimeHandler string // empty: the runtime's default

	IPs        []string         // detail: the primary address first; none on the host's network
	Namespaces NamespaceOptions // detail
}

// SandboxConfig is a request for a sandbox.
type SandboxConfig struct {
	Pod            PodIdentity
	Attempt        uint32
	RuntimeHandler string // empty: the runtime's default

	Hostname     string // empty on the host's network
	LogDirectory string // absolute; ContainerConfig.LogPath is relative to it. Empty: no logs
	DNS          *DNSConfig
	Ports        []PortMapping
	Labels       map[string]string
	Annotations  map[string]string

	CgroupParent string // in the form of the runtime's CgroupDriver; empty: the runtime's choice
	Sysctls      map[string]string
	Security     SandboxSecurity
	Overhead     *Resources // what the pod costs beside its containers
	Resources    *Resources // the sum over the containers, without Overhead
}

// DNSConfig is the content of a pod's resolv.conf. A nil one leaves the runtime's default, the host's file; one
// without servers, searches and options is an empty file.
type DNSConfig struct {
	Servers  []string
	Searches []string
	Options  []string
}

// Protocol is the transport of a port.
type Protocol uint8

// The protocols of a port mapping.
const (
	TCP Protocol = iota
	UDP
	SCTP
)

// String returns "TCP", "UDP" or "SCTP".
func (p Protocol) String() string { return name(p, "TCP", "UDP", "SCTP") }

// PortMapping publishes a port of the sandbox on the host.
type PortMapping struct {
	Protocol      Protocol
	ContainerPort int32
	HostPort      int32  // zero publishes nothing
	HostIP        string // empty: every address
}

// NamespaceMode says whose namespace something is in.
type NamespaceMode uint8

// The modes of a namespace.
const (
	NamespacePod       NamespaceMode = iota // shared by the containers of the pod
	NamespaceContainer                      // of the container alone
	NamespaceNode                           // of the host
	NamespaceTarget                         // of the container TargetID
)

// String returns "pod", "container", "node" or "target".
func (m NamespaceMode) String() string { return name(m, "pod", "container", "node", "target") }

// NamespaceOptions places a sandbox or container in namespaces. The zero value shares everything within the pod.
type NamespaceOptions struct {
	Network  NamespaceMode
	PID      NamespaceMode
	IPC      NamespaceMode
	TargetID string         // for PID in mode NamespaceTarget
	User     *UserNamespace // nil: the host's user namespace
}

// UserNamespace maps user and group IDs of a pod to the host. Mode NamespacePod uses the mappings, NamespaceNode
// none.
type UserNamespace struct {
	Mode NamespaceMode
	UIDs []IDMapping
	GIDs []IDMapping
}

// IDMapping maps Length IDs from ContainerID on to HostID and up.
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
	RunAsGroup               *int64 // needs RunAsUser
	ReadonlyRootfs           bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy GroupsPolicy
	Privileged               bool // some container of the pod is
	Seccomp                  *SecurityProfile
	AppArmor                 *SecurityProfile
}

// SELinux is a label in its four parts.
type SELinux struct {
	User, Role, Type, Level string
}

// GroupsPolicy decides whether the groups of the image's user count.
type GroupsPolicy uint8

// The policies for supplemental groups.
const (
	GroupsMerge  GroupsPolicy = iota // those of the image's user as well
	GroupsStrict                     // only those of the config
)

// String returns "Merge" or "Strict".
func (p GroupsPolicy) String() string { return name(p, "Merge", "Strict") }

// ProfileType is where a security profile comes from.
type ProfileType uint8

// The types of a security profile.
const (
	ProfileRuntimeDefault ProfileType = iota
	ProfileUnconfined
	ProfileLocalhost
)

// String returns "RuntimeDefault", "Unconfined" or "Localhost".
func (t ProfileType) String() string { return name(t, "RuntimeDefault", "Unconfined", "Localhost") }

// SecurityProfile names a seccomp or AppArmor profile.
type SecurityProfile struct {
	Type         ProfileType
	LocalhostRef string // for ProfileLocalhost: the path of a seccomp file, the name of an AppArmor profile
}
