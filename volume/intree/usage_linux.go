// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/volume"
)

// measureDir returns the usage of a directory: that of its file system if dir is a mount point, otherwise by a walk.
func (n *node) measureDir(ctx context.Context, dir string) (u volume.Usage, err error) {
	if u, err = n.statFilesystem(ctx, dir); err != nil {
		return u, err
	}
	mounted, err := mount.IsMountPoint(dir)
	if mounted || err != nil {
		return u, err
	}
	w := dirusage.Walk{}
	err = w.Run(ctx, dir)
	u.UsedBytes, u.UsedInodes = w.Bytes, w.Inodes
	return u, err
}
