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

// limit makes the sizeLimit of an emptyDir on the disk hard, where the file system has project quotas: who writes more gets an
// error. Elsewhere whoever evicts pods enforces it.
func (d *emptyDir) limit(ctx context.Context, v volume.Volume) error {
	limit := v.Source.EmptyDir.SizeLimit
	if limit == nil || limit.Value() <= 0 || !mayLimit(v.Pod) {
		return nil
	}
	size := uint64(limit.Value())
	err := d.node.calls.Do(ctx, "quota "+v.Dir, func() error { return d.node.projects.Limit(v.Dir, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// mayLimit reports whether the quota of a project holds for a pod: in a user namespace of its own. Processes of the host's user namespace may
// give their files to another project, which takes these out of the quota and what a quota counts. Source: pkg/volume/emptydir, setupDir.
func mayLimit(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers
}

// unlimit takes the quota from a project whose directory was removed. One that stays limits nobody.
func (d *emptyDir) unlimit(v volume.Volume, project uint32) {
	if project != 0 {
		_ = projquota.Release(filepath.Dir(v.Dir), project)
	}
}

// quotaUsage returns what the quota of a directory counts, which takes no walk, or false where it has none.
func (n *node) quotaUsage(ctx context.Context, dir string) (volume.Usage, bool) {
	quota, err := projquota.UsageOf(dir)
	if err != nil || quota.Limit == 0 {
		return volume.Usage{}, false
	}
	u, err := n.statfs(ctx, dir)
	if err != nil {
		return u, false
	}
	u.UsedBytes, u.UsedInodes, u.CapacityBytes = quota.Bytes, quota.Inodes, quota.Limit
	u.AvailableBytes = min(u.AvailableBytes, quota.Limit-min(quota.Bytes, quota.Limit))
	return u, true
}
