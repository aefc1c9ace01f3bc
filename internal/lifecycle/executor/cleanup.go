// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// Cleaner releases the volumes and devices of a terminated pod and removes its cgroup, its logs and its files on the node.
type Cleaner struct {
	node     *Node
	reporter *Reporter
	volumes  *Volumes
	devices  *Devices
	logs     *logs
	files    poddir.Dir

	shared   bool // another agent has containers of the pod; see SetShared
	released bool // the volumes, devices and the cgroup were released while the pod is terminated
}

// SetShared stores whether another agent on this node also has containers of the pod. If shared is true, the Cleaner keeps
// the volumes, the devices, the cgroup and the logs of the pod.
func (c *Cleaner) SetShared(shared bool) { c.shared = shared }

// releaseTerminated releases the volumes, devices and the cgroup of a terminated pod. released is true if this call released
// them. Source: SyncTerminatedPod in pkg/kubelet/kubelet.go.
func (c *Cleaner) releaseTerminated(ctx context.Context, actions *plan.Actions, observed cri.Pod) (released bool, err error) {
	if terminated := actions.PodTerminal && podview.IsTerminated(observed); !terminated || c.released {
		c.released = terminated
		return false, nil
	}
	if err = c.ReleaseResources(ctx); err == nil {
		err = c.RemoveCgroup(ctx)
	}
	c.released = err == nil
	return c.released, err
}

// ReleaseResources releases the devices of the pod, and tears down its volumes. No container of the pod may run. A volume that takes long to tear down
// keeps no device, CPU or memory from other pods.
func (c *Cleaner) ReleaseResources(ctx context.Context) error {
	if c.shared {
		return nil
	}
	return errors.Join(c.devices.release(ctx), c.volumes.releaseVolumes(ctx))
}

// RemoveCgroup removes the cgroup of the pod. The runtime must have no container or sandbox of the pod.
func (c *Cleaner) RemoveCgroup(ctx context.Context) error {
	if c.node.Cgroups == nil || c.shared {
		return nil
	}
	return c.node.Cgroups.Remove(ctx, c.reporter.id.UID)
}

// RemoveFiles removes the log directory and the pod directory. It logs errors and does not return them.
func (c *Cleaner) RemoveFiles() {
	if !c.shared {
		c.logs.removeAll()
	}
	if err := c.files.Remove(); err != nil {
		c.reporter.Warn("remove pod files", "error", err)
	}
}
