// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// Container is a container instance in the runtime. A restart creates a new Container with a higher Attempt. A runtime that
// implements [Inspector] may omit fields marked "detail" from List.
type Container struct {
	ID          string
	SandboxID   string
	PodUID      string // from the sandbox, or from the pod UID label if the sandbox was removed
	Name        string
	Attempt     uint32 // number of earlier instances of this container in the pod
	State       ContainerState
	CreatedAt   time.Time
	Image       ImageSpec // as requested
	ImageRef    string    // resolved reference: a digest if there is one, else an ID
	ImageID     string    // empty if the runtime does not report it separately from ImageRef
	Labels      map[string]string
	Annotations map[string]string

	StartedAt  time.Time      // detail: zero before it started
	FinishedAt time.Time      // detail: zero before it exited
	ExitCode   int32          // detail: valid in state ContainerExited; 128+n if signal n killed it
	Reason     string         // detail: one word, such as Completed, Error or OOMKilled
	Message    string         // detail: human-readable
	Mounts     []Mount        // detail
	LogPath    string         // detail: absolute
	Resources  *Resources     // detail: as enforced; nil if the runtime does not report them
	User       *ContainerUser // detail: the actual user; nil if the runtime does not report it
	StopSignal Signal         // detail: the effective signal; empty if the runtime does not report it
}

// ContainerUser is the user and the groups of a container's first process.
type ContainerUser struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// ContainerConfig describes a container to create.
type ContainerConfig struct {
	Name    string
	Attempt uint32
	Image   ImageSpec

	Command     []string // nil: the image's entrypoint
	Args        []string // nil: the image's arguments, unless Command is set
	WorkingDir  string   // empty: the image's working directory
	Env         []EnvVar
	Mounts      []Mount
	Devices     []Device
	CDIDevices  []string // fully qualified, such as "vendor.com/class=name"
	Labels      map[string]string
	Annotations map[string]string
	LogPath     string // relative to SandboxConfig.LogDirectory; empty: no log

	Stdin     bool
	StdinOnce bool // close stdin when the first attached client disconnects
	TTY       bool

	StopSignal Signal // empty: the image's stop signal, or SIGTERM if it has none
	Resources  *Resources
	Security   ContainerSecurity
}

// EnvVar is one environment variable.
type EnvVar struct {
	Name, Value string
}

// Propagation determines whether mounts created later are visible across the container boundary.
type Propagation uint8

// The mount propagations.
const (
	PropagationPrivate         Propagation = iota // in neither direction
	PropagationHostToContainer                    // from the host into the container (rslave)
	PropagationBidirectional                      // in both directions (rshared)
)

// String returns "private", "host-to-container" or "bidirectional".
func (p Propagation) String() string {
	return name(p, "private", "host-to-container", "bidirectional")
}

// Mount mounts a host path or an image into a container.
type Mount struct {
	ContainerPath     string
	HostPath          string
	ReadOnly          bool
	RecursiveReadOnly bool // requires ReadOnly and PropagationPrivate
	SELinuxRelabel    bool
	Propagation       Propagation
	UIDMappings       []IDMapping
	GIDMappings       []IDMapping
	Image             *ImageSpec // mount this image instead of HostPath; nil: HostPath
	ImageSubPath      string
	Options           []string // for example noexec, nodev, nosuid
}

// Device makes a device node of the host available in a container.
type Device struct {
	ContainerPath string
	HostPath      string
	Permissions   string // any combination of r, w and m (mknod)
}

// Signal is the name of a signal in the CRI, such as "SIGTERM" or "SIGRTMIN+3". Empty selects the runtime's default.
type Signal string

// ContainerSecurity is the security context of a container.
type ContainerSecurity struct {
	Capabilities             *Capabilities // nil: the runtime's default set
	Privileged               bool
	Namespaces               NamespaceOptions
	SELinux                  *SELinux
	RunAsUser                *int64
	RunAsGroup               *int64 // requires RunAsUser or RunAsUsername
	RunAsUsername            string // resolved in the image's /etc/passwd; excludes RunAsUser
	ReadonlyRootfs           bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy GroupsPolicy
	NoNewPrivs               bool
	MaskedPaths              []string
	ReadonlyPaths            []string
	Seccomp                  *SecurityProfile // nil: unconfined
	AppArmor                 *SecurityProfile // nil: the runtime's default
}

// Capabilities changes the runtime's default set of Linux capabilities. Names have no "CAP_" prefix; "ALL" is allowed.
type Capabilities struct {
	Add        []string
	Drop       []string
	AddAmbient []string
}

// Resources are the resource limits of a container or pod. A zero field is not set, or remains unchanged in an update.
type Resources struct {
	CPUPeriod      int64 // microseconds
	CPUQuota       int64 // microseconds in each period; -1: unlimited
	CPUShares      int64 // 2 to 262144
	MemoryLimit    int64 // bytes
	SwapLimit      int64 // bytes of memory and swap together; -1: unlimited
	OOMScoreAdj    int64 // -1000 to 1000
	CpusetCPUs     string
	CpusetMems     string
	HugepageLimits []HugepageLimit
	Unified        map[string]string // cgroup v2 file name to value
}

// HugepageLimit limits the hugepages of one size.
type HugepageLimit struct {
	PageSize string // as in the name of the cgroup file: "2MB", "1GB"
	Limit    uint64 // bytes
}
