// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"
)

// Options configures an [Allocator]. The zero value keeps no record and ignores NUMA nodes.
type Options struct {
	// Record is the path of the file that stores the devices of each container. New creates its directory. After a power failure it may be older, or
	// damaged. Empty: a restarted agent restores devices from Running only.
	Record string
	// Previous returns the claims of another agent, such as those in the checkpoint of a kubelet. New calls it if Record does not exist. Nil, or an
	// error that wraps fs.ErrNotExist: there are no claims.
	Previous func() (Previous, error)
	// Running returns the containers that exist in the runtime. If Record is missing or damaged, [Allocator.Run] calls it until it succeeds, and
	// Reserve fails until then. Nil: no containers exist.
	Running func(ctx context.Context) ([]RunningContainer, error)
	// Export stores the claims of all pods, and the healthy IDs of each registered resource, for another agent such as a kubelet. It is called after each
	// change, before Reserve returns, one call at a time. An error is reported, and Run repeats the call. Nil: nothing is exported.
	Export func(claims []Claim, healthy map[string][]string) error
	// IsForeign reports whether a resource of the Node has another manager, for example an operator who patched the Node. A pod runs without devices
	// of a foreign resource, as long as no plugin has ever registered the resource. IsForeign must not block. Nil: no resource is foreign.
	IsForeign func(resource string) bool

	Topology Topology
	Timeouts Timeouts
	Kubelet  Kubelet
	Hooks    Hooks
	Logger   *slog.Logger // nil discards
}

// Timeouts limit the calls of plugins. A zero field has its default.
type Timeouts struct {
	Preferred time.Duration // GetPreferredAllocation; default 10 s
	Allocate  time.Duration // default 1 minute
	PreStart  time.Duration // PreStartContainer; default 30 s, as in the kubelet
}

// Kubelet switches off differences between an [Allocator] and the kubelet. The zero value keeps all differences.
type Kubelet struct {
	NoWait          bool // after a restart, pods fail at once while their plugin has not listed its devices
	RunWithout      bool // pods run without devices of a resource that has no plugin, and of which no pod holds a device
	IgnoreConflicts bool // of two values of one environment variable, mount, device node or annotation, the first is used
	AssumeHealthy   bool // devices that no plugin reports are Healthy instead of Unknown
}

// Hooks are functions that an [Allocator] calls with no lock held. They must not block. Any field may be nil.
type Hooks struct {
	// CapacityChanged is called when capacity or allocatable of a resource has changed.
	CapacityChanged func()
	// PodsChanged is called with the UIDs of pods whose devices have changed their health, or whose wait for a plugin has ended.
	PodsChanged func(uids []string)
	// AllocateCalled is called after each Allocate of a plugin (kubelet_device_plugin_alloc_duration_seconds).
	AllocateCalled func(resource string, took time.Duration, err error)
	// Reserved is called after each reservation for a pod that needs devices or has partners (topology_manager_admission_requests_total).
	Reserved func(r Reservation)
	// Error is called for errors that no call returns: the record is damaged, or cannot be written.
	Error func(err error)
}

// Reservation is the outcome of [Allocator.Reserve] for a pod that needs devices or has partners.
type Reservation struct {
	PodUID   string
	Took     time.Duration
	Policy   Policy
	PodScope bool
	Aligned  int   // number of merged hints: one for each container, or with PodScope one for the pod; zero under the policy None
	Err      error // nil: the pod has its devices
}

// RunningContainer is a container that exists in the runtime.
type RunningContainer struct {
	PodUID, Namespace, Name string
	Container               string
	Note                    string // the annotation [AnnotationDevices]; empty: the container holds no devices
}

// Previous has the claims and plugins of another agent, such as a kubelet.
type Previous struct {
	Claims    []Claim
	Resources []string // resources whose plugins were registered
}

// Claim has the devices of one resource that one container holds.
type Claim struct {
	PodUID, Container, Resource string
	Devices                     []Device  // Healthy is that of the last list
	Response                    *Response // of Allocate; nil: unknown, and the next start of the container calls Allocate again
}

// Resource is the number of devices of one resource, for the status of the Node.
type Resource struct {
	Name        string
	Capacity    int  // all devices of the last list
	Allocatable int  // healthy devices; zero if no plugin is connected
	Removed     bool // no plugin was connected for [StopGrace]; Capacity and Allocatable are zero
}

// Socket is the unix socket of a plugin for a resource.
type Socket struct{ Resource, Path string }

// withDefaults returns the options with defaults for zero fields, or an error that names an invalid field.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Topology.Policy < None || o.Topology.Policy > SingleNUMANode:
		return o, errors.New("device: Options.Topology.Policy is unknown")
	case o.Topology.Policy != None && len(o.Topology.Nodes) == 0:
		return o, errors.New("device: Options.Topology.Nodes is empty: the policy " + o.Topology.Policy.String() + " needs the NUMA nodes of the machine")
	case o.Timeouts.Preferred < 0 || o.Timeouts.Allocate < 0 || o.Timeouts.PreStart < 0:
		return o, errors.New("device: a field of Options.Timeouts is negative")
	}
	o.Timeouts.Preferred = cmp.Or(o.Timeouts.Preferred, 10*time.Second)
	o.Timeouts.Allocate = cmp.Or(o.Timeouts.Allocate, time.Minute)
	o.Timeouts.PreStart = cmp.Or(o.Timeouts.PreStart, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
