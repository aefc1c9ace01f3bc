// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/projquota"
	"github.com/seed81659283/nodeagent/volume"
)

// setQuota limits the disk usage of the volume to its sizeLimit with a project quota, if pod and file system permit it.
func (d *emptyDir) setQuota(ctx context.Context, vol volume.Volume) error {
	limit := vol.Source.EmptyDir.SizeLimit
	if limit == nil || limit.Value() <= 0 || !canUseQuota(vol.Pod) {
		return nil // only the eviction manager enforces the limit
	}
	size := uint64(limit.Value())
	err := d.node.calls.Do(ctx, "quota "+vol.Dir, func() error { return d.node.projects.Limit(vol.Dir, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// canUseQuota reports whether a project quota limits the pod, because it has its own user namespace. Source: setupDir in
// pkg/volume/emptydir.
func canUseQuota(pod *corev1.Pod) bool {
	// In the user namespace of the host, a process can move its files to another project.
	return pod != nil && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// releaseQuota removes the quota of the project ID of a removed volume, or zero. It ignores errors: a remaining quota applies to
// no files.
func (d *emptyDir) releaseQuota(vol volume.Volume, project uint32) {
	if project != 0 {
		_ = projquota.Release(filepath.Dir(vol.Dir), project)
	}
}

// quotaUsage returns the usage of a directory from its project quota, faster than adding up files, and false if it has none.
func (n *node) quotaUsage(ctx context.Context, dir string) (volume.Usage, bool) {
	quota, err := projquota.UsageOf(dir)
	if err != nil || quota.Limit == 0 {
		return volume.Usage{}, false
	}
	u, err := n.statFilesystem(ctx, dir)
	if err != nil {
		return u, false
	}
	u.UsedBytes, u.UsedInodes, u.CapacityBytes = quota.Bytes, quota.Inodes, quota.Limit
	u.AvailableBytes = min(u.AvailableBytes, quota.Limit-min(quota.Bytes, quota.Limit))
	return u, true
}
