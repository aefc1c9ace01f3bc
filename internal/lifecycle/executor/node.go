// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/startslots"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Node is what the executors of all pods share. Its fields are those of lifecycle.Options with their defaults.
type Node struct {
	Runtime cri.Runtime
	Spec    podspec.Options
	Images  ImageSource // nil: images are not made present
	Cgroups PodCgroups  // nil: the runtime creates cgroups
	Volumes PodVolumes  // nil: pods have no volumes
	// Network returns why the network of pods is not ready, and may wait for the answer of the runtime. Nil: it always is.
	Network     func(ctx context.Context, uid string, wait bool) error
	Objects     podspec.Objects             // nil: there are none
	AdmitResize func(pod *corev1.Pod) error // nil: there is always room
	PodRoot     string
	NoMounts    bool
	LogLinks    string
	Slots       *startslots.Slots
	SlowAfter   time.Duration
	Mark        func(labels map[string]string) // writes whose a sandbox or a container is
	Logger      *slog.Logger

	// The hooks, which are those of lifecycle.Options.Hooks. Any may be nil.
	Event           func(pod cri.PodIdentity, event podevents.Event)
	Error           func(pod cri.PodIdentity, err error, retry time.Duration)
	Started         func(pod cri.PodIdentity, start podevents.ContainerStart)
	SandboxStarted  func(pod cri.PodIdentity, start podevents.SandboxStart)
	Synced          func(pod cri.PodIdentity, s podevents.Sync)
	ImageVolume     func(pod cri.PodIdentity, err error)
	SleepTerminated func(pod cri.PodIdentity)

	resizing  *sync.Mutex        // held while a pod that is resized is judged
	inspector cri.Inspector      // nil: the runtime has none
	updater   cri.Updater        // likewise
	stats     cri.StatsLister    // likewise
	podStats  cri.PodStatsLister // likewise
	execer    cri.Execer         // nil: commands of hooks fail
	holder    imageHolder        // nil: images are not held while a container is created
}

// Prepare finds out what the runtime can do, and returns the node.
func (n Node) Prepare() *Node {
	n.inspector, _ = n.Runtime.(cri.Inspector)
	n.updater, _ = n.Runtime.(cri.Updater)
	n.stats, _ = n.Runtime.(cri.StatsLister)
	n.podStats, _ = n.Runtime.(cri.PodStatsLister)
	n.execer, _ = n.Runtime.(cri.Execer)
	n.holder, _ = n.Images.(imageHolder)
	n.resizing = new(sync.Mutex)
	return &n
}
