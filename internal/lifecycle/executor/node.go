// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/startslots"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Node holds the configuration that the executors of all pods share. Its fields have the meaning and defaults of those in
// lifecycle.Options.
type Node struct {
	Runtime cri.Runtime
	Spec    podspec.Options
	Images  ImageSource // nil: images are not pulled
	Cgroups PodCgroups  // nil: the runtime creates cgroups
	Volumes PodVolumes  // nil: pods have no volumes
	Devices PodDevices  // nil: pods have no devices
	// CheckNetwork returns an error if the pod network is not ready. With wait it may wait for the runtime status. Nil: the
	// network is always ready.
	CheckNetwork     func(ctx context.Context, uid string, wait bool) error
	Objects          podspec.Objects             // nil: pods can refer to no config maps and secrets
	AdmitResize      func(pod *corev1.Pod) error // nil: every resize fits on the node
	PodRoot          string
	NoMounts         bool
	LogLinks         string
	Slots            *startslots.Slots
	StartSlotTimeout time.Duration
	MarkOwner        func(labels map[string]string) // sets the owner label of a sandbox or container
	AdoptUnlabeled   bool                           // pods may have containers that a kubelet has created
	Logger           *slog.Logger

	// Hooks with the contracts of lifecycle.Options.Hooks. Each may be nil.
	Event                 func(pod cri.PodIdentity, event podevents.Event)
	Error                 func(pod cri.PodIdentity, err error, retry time.Duration)
	StartAttempted        func(pod cri.PodIdentity, start podevents.ContainerStart)
	SandboxStartAttempted func(pod cri.PodIdentity, start podevents.SandboxStart)
	PodSynced             func(pod cri.PodIdentity, s podevents.Sync)
	ImageVolumeRequested  func(pod cri.PodIdentity, err error)
	SleepTerminated       func(pod cri.PodIdentity)

	resizeMutex *sync.Mutex        // held while the node decides about a resize
	inspector   cri.Inspector      // nil: the runtime does not implement it
	updater     cri.Updater        // nil: the runtime does not implement it
	noUpdates   *atomic.Bool       // the runtime has refused an update of a container with errors.ErrUnsupported
	stats       cri.StatsLister    // nil: the runtime does not implement it
	podStats    cri.PodStatsLister // nil: the runtime does not implement it
	execer      cri.Execer         // nil: exec hooks fail
	holder      imageHolder        // nil: images are not protected from garbage collection during a create
}

// DetectFeatures returns a copy of n that records which optional interfaces n.Runtime and n.Images implement. It must be
// called once, before [NewReporter].
func (n Node) DetectFeatures() *Node {
	n.inspector, _ = n.Runtime.(cri.Inspector)
	n.updater, _ = n.Runtime.(cri.Updater)
	n.stats, _ = n.Runtime.(cri.StatsLister)
	n.podStats, _ = n.Runtime.(cri.PodStatsLister)
	n.execer, _ = n.Runtime.(cri.Execer)
	n.holder, _ = n.Images.(imageHolder)
	n.resizeMutex, n.noUpdates = new(sync.Mutex), new(atomic.Bool)
	return &n
}

// canUpdate reports whether the runtime can change the resources of a running container, as far as it has shown.
func (n *Node) canUpdate() bool { return n.updater != nil && !n.noUpdates.Load() }
