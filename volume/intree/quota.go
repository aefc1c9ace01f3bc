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

// setQuota makes the sizeLimit of an emptyDir on disk a hard limit, if the file system has project quotas. Otherwise the eviction
// manager enforces it.
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

// canUseQuota reports whether a project quota is effective for a pod: it has a user namespace of its own. Processes in the host's
// user namespace can change the project of their files, which the quota then no longer counts. Source: pkg/volume/emptydir,
// setupDir.
func canUseQuota(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// releaseQuota releases the project quota of a removed directory. It ignores errors: a remaining quota limits no files.
func (d *emptyDir) releaseQuota(vol volume.Volume, project uint32) {
	if project != 0 {
		_ = projquota.Release(filepath.Dir(vol.Dir), project)
	}
}

// quotaUsage returns the usage of a directory from its project quota, without a walk; false: it has no quota.
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
