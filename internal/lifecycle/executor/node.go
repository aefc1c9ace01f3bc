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
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
	"github.com/seed81659283/nodeagent/internal/lifecycle/startslots"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Node is what the executors of all pods share. Its fields are those of lifecycle.Options with their defaults.
type Node struct {
	Runtime cri.Runtime
	Spec    podspec.Options
	Images  ImageSource  // nil: no image is looked at
	Cgroups PodCgroups   // nil: the runtime makes them
	Volumes PodResources // nil: no pod has any
	// Network returns why the network of pods is not ready, and may wait for the answer of the runtime. Nil: it always is.
	Network     func(ctx context.Context, uid string, wait bool) error
	Objects     podenv.Objects              // nil: there are none
	AdmitResize func(pod *corev1.Pod) error // nil: there is always room
	PodRoot     string
	NoMounts    bool
	LogLinks    string
	Slots       *startslots.Slots
	SlowAfter   time.Duration
	Mark        func(labels map[string]string) // writes whose a sandbox or a container is
	Logger      *slog.Logger
	Event       func(pod cri.PodIdentity, event Event)                    // may be nil
	Error       func(pod cri.PodIdentity, err error, retry time.Duration) // may be nil
	Started     func(pod cri.PodIdentity, start ContainerStart)           // may be nil
	Work        WorkHooks

	resizing  *sync.Mutex        // held while a pod that is resized is judged
	inspector cri.Inspector      // nil: the runtime has none
	updater   cri.Updater        // likewise
	stats     cri.StatsLister    // likewise
	podStats  cri.PodStatsLister // likewise
	execer    cri.Execer         // nil: commands of hooks fail
	holder    ImageHolder        // nil: whoever removes images is to know by itself which are about to be used
}

// Prepare finds out what the runtime can do, and returns the node.
func (n Node) Prepare() *Node {
	n.inspector, _ = n.Runtime.(cri.Inspector)
	n.updater, _ = n.Runtime.(cri.Updater)
	n.stats, _ = n.Runtime.(cri.StatsLister)
	n.podStats, _ = n.Runtime.(cri.PodStatsLister)
	n.execer, _ = n.Runtime.(cri.Execer)
	n.holder, _ = n.Images.(ImageHolder)
	n.resizing = new(sync.Mutex)
	return &n
}
