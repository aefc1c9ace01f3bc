// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"

	"github.com/seed81659283/nodeagent/internal/dirusage"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/volume"
)

// measureDir returns the usage of the directory dir. For a mount point, this is the usage of the mounted file system. For any
// other directory, it is the usage of all files below dir.
func (n *node) measureDir(ctx context.Context, dir string) (usage volume.Usage, err error) {
	if usage, err = n.statFilesystem(ctx, dir); err != nil {
		return usage, err
	}
	mounted, err := mount.IsMountPoint(dir)
	if mounted || err != nil {
		return usage, err
	}
	w := dirusage.Walk{}
	err = w.Run(ctx, dir)
	usage.UsedBytes, usage.UsedInodes = w.Bytes, w.Inodes
	return usage, err
}
