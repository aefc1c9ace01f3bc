// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Cleaner releases the volumes of a pod of which nothing runs, and removes its cgroup, its logs and its files.
type Cleaner struct {
	node     *Node
	reporter *Reporter
	volumes  *Volumes
	logs     *logs
	files    poddir.Dir

	shared   bool // see SetShared
	released bool // the pod has terminated, and its volumes and its cgroup are released
}

// SetShared stores whether another agent has containers of the pod: its volumes, its cgroup and its logs are then left alone.
func (c *Cleaner) SetShared(shared bool) { c.shared = shared }

// releaseTerminated releases the volumes and the cgroup of a pod that is terminal or temporarily evicted, although its source lists it, and
// reports whether it has done so now. Source: SyncTerminatedPod in pkg/kubelet/kubelet.go.
func (c *Cleaner) releaseTerminated(ctx context.Context, a *plan.Actions, observed cri.Pod) (released bool, err error) {
	if terminated := a.PodTerminal && podview.Terminated(observed); !terminated || c.released {
		c.released = terminated
		return false, nil
	}
	if err = c.Release(ctx); err == nil {
		err = c.RemoveCgroup(ctx)
	}
	c.released = err == nil
	return c.released, err
}

// Release releases the volumes of a pod of which nothing runs.
func (c *Cleaner) Release(ctx context.Context) error {
	if c.shared {
		return nil
	}
	return c.volumes.release(ctx)
}

// RemoveCgroup removes the cgroup of a pod of which the runtime has nothing left.
func (c *Cleaner) RemoveCgroup(ctx context.Context) error {
	if c.node.Cgroups == nil || c.shared {
		return nil
	}
	return c.node.Cgroups.Remove(ctx, c.reporter.id.UID)
}

// RemoveFiles removes the logs and the files of the pod.
func (c *Cleaner) RemoveFiles() {
	if !c.shared {
		c.logs.removeAll()
	}
	if err := c.files.Remove(); err != nil {
		c.reporter.Warn("remove pod files", "error", err)
	}
}
