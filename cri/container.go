// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import "time"

// Container is a container instance as the runtime has it. A restart is a new Container with a higher Attempt.
type Container struct {
	ID          string
	SandboxID   string
	PodUID      string // of the sandbox, or of the pod label where the sandbox is gone
	Name        string
	Attempt     uint32 // how many containers of this name the pod had before
	State       ContainerState
	CreatedAt   time.Time
	Image       ImageSpec // as asked for
	ImageRef    string    // as resolved, a digest where there is one
	ImageID     string    // the ID of the image, where the runtime tells it apart from ImageRef
	Labels      map[string]string
	Annotations map[string]string

	StartedAt  time.Time      // detail: zero before it started
	FinishedAt time.Time      // detail: zero before it exited
	ExitCode   int32          // detail: valid in state ContainerExited; 128+n where signal n ended it
	Reason     string         // detail: one word, such as Completed, Error or OOMKilled
	Message    string         // detail: for people
	Mounts     []Mount        // detail
	LogPath    string         // detail: absolute
	Resources  *Resources     // detail: as in force, nil where the runtime does not say
	User       *ContainerUser // detail: as it runs, nil where the runtime does not say
	StopSignal Signal         // detail: in force; empty where the runtime does not say
}

// ContainerUser is who the first process of a container is.
type ContainerUser struct {
	UID, GID           int64
	SupplementalGroups []int64
}

// ContainerConfig is a request for a container.
type ContainerConfig struct {
	Name    string
	Attempt uint32
	Image   ImageSpec

	Command     []string // nil: the image's entrypoint
	Args        []string // nil: the image's arguments, unless Command is set
	WorkingDir  string   // empty: the image's
	Env         []EnvVar
	Mounts      []Mount
	Devices     []Device
	CDIDevices  []string // fully qualified, as "vendor.com/class=name"
	Labels      map[string]string
	Annotations map[string]string
	LogPath     string // relative to SandboxConfig.LogDirectory; empty: no log

	Stdin     bool
	StdinOnce bool // close stdin when the first client leaves
	TTY       bool

	StopSignal Signal // empty: the image's, else SIGTERM
	Resources  *Resources
	Security   ContainerSecurity
}

// EnvVar is one environment variable.
type EnvVar struct {
	Name, Value string
}

// Propagation says in which directions mounts made later are seen.
type Propagation uint8

// The mount propagations.
const (
	PropagationPrivate         Propagation = iota // neither way
	PropagationHostToContainer                    // rslave
	PropagationBidirectional                      // rshared
)

// String returns "private", "host-to-container" or "bidirectional".
func (p Propagation) String() string {
	return name(p, "private", "host-to-container", "bidirectional")
}

// Mount puts a host path or an image into a container.
type Mount struct {
	ContainerPath     string
	HostPath          string
	ReadOnly          bool
	RecursiveReadOnly bool // needs ReadOnly and PropagationPrivate
	SELinuxRelabel    bool
	Propagation       Propagation
	UIDMappings       []IDMapping
	GIDMappings       []IDMapping
	Image             *ImageSpec // mount this image instead of HostPath; nil: HostPath
	ImageSubPath      string
	Options           []string // such as noexec, nodev, nosuid
}

// Device is a device node of the host.
type Device struct {
	ContainerPath string
	HostPath      string
	Permissions   string // of r, w and m
}

// Signal is the name of a signal as the CRI has it, such as "SIGTERM" or "SIGRTMIN+3". Empty leaves the choice to
// the runtime.
type Signal string

// ContainerSecurity is the security context of a container.
type ContainerSecurity struct {
	Capabilities             *Capabilities // nil: the runtime's default set
	Privileged               bool
	Namespaces               NamespaceOptions
	SELinux                  *SELinux
	RunAsUser                *int64
	RunAsGroup               *int64 // needs RunAsUser or RunAsUsername
	RunAsUsername            string // looked up inside the image; excludes RunAsUser
	ReadonlyRootfs           bool
	SupplementalGroups       []int64
	SupplementalGroupsPolicy GroupsPolicy
	NoNewPrivs               bool
	MaskedPaths              []string
	ReadonlyPaths            []string
	Seccomp                  *SecurityProfile // nil: unconfined
	AppArmor                 *SecurityProfile // nil: the runtime's default
}

// Capabilities changes the runtime's default set of capabilities. Names come without "CAP_"; "ALL" is allowed.
type Capabilities struct {
	Add        []string
	Drop       []string
	AddAmbient []string
}

// Resources is what a container or pod may use. A zero field is not set (or, in an update, not changed).
type Resources struct {
	CPUPeriod      int64 // microseconds
	CPUQuota       int64 // microseconds in each period; -1: none
	CPUShares      int64 // 2 to 262144
	MemoryLimit    int64 // bytes
	SwapLimit      int64 // bytes of memory and swap together; -1: none
	OOMScoreAdj    int64 // -1000 to 1000
	CpusetCPUs     string
	CpusetMems     string
	HugepageLimits []HugepageLimit
	Unified        map[string]string // cgroup v2 files and what to write to them
}

// HugepageLimit limits the hugepages of one size.
type HugepageLimit struct {
	PageSize string // as in the cgroup file's name: "2MB", "1GB"
	Limit    uint64 // bytes
}
