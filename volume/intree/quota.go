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

// setQuota limits the disk usage of the volume to its sizeLimit with a project quota. It does nothing if the file system has
// no project quotas or the pod has no user namespace. In these cases, only the eviction manager enforces the limit.
func (d *emptyDir) setQuota(ctx context.Context, vol volume.Volume) error {
	limit := vol.Source.EmptyDir.SizeLimit
	if limit == nil || limit.Value() <= 0 || !canUseQuota(vol.Pod) {
		return nil
	}
	size := uint64(limit.Value())
	err := d.node.calls.Do(ctx, "quota "+vol.Dir, func() error { return d.node.projects.Limit(vol.Dir, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// canUseQuota reports whether the pod has its own user namespace, so that a project quota limits its processes. In the user
// namespace of the host, a process can move its files to another project, whose quota then counts them. Source: setupDir in
// pkg/volume/emptydir.
func canUseQuota(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// releaseQuota removes the quota of the project ID that the removed directory of the volume had. Zero means that it had
// none. Errors are ignored, because a remaining quota applies to no files.
func (d *emptyDir) releaseQuota(vol volume.Volume, project uint32) {
	if project != 0 {
		_ = projquota.Release(filepath.Dir(vol.Dir), project)
	}
}

// quotaUsage returns the usage of a directory as its project quota has counted it, which is faster than adding up all files.
// It returns false if the directory has no quota.
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
