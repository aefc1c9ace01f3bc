// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// applyFSGroup changes the group of the files in the volume's mount point dir to the pod's fsGroup, unless the driver does so or
// its policy forbids it.
func (op *operation) applyFSGroup(ctx context.Context, vol *volume.Volume, dir string) error {
	group := fsGroup(vol.Pod)
	if op.can[canMountGroup] || !op.policy.needsFSGroup(&op.spec, group) {
		return nil
	}
	o := fsgroup.Options{
		Policy: fsgroup.Policy(*optional.OrZero(vol.Pod.Spec.SecurityContext.FSGroupChangePolicy)),
		ReportSlow: func(files int) {
			name := dir
			if rel, err := filepath.Rel(filepath.Dir(vol.PodDir), dir); err == nil {
				name = rel
			}
			vol.Warn(volume.ReasonPermissionChange, fmt.Sprintf("Setting volume ownership for %s, processed %d files.", name, files))
		},
	}
	err := fsgroup.Apply(ctx, dir, *group, o)
	if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
		return nil // all other files are changed; the kubelet continues too
	}
	return err
}
