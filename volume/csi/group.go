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

// giveToGroup gives the files of a volume to the group of the pod, unless the driver has done that or nobody wants it.
func (op *operation) giveToGroup(ctx context.Context, v *volume.Volume, dir string) error {
	group := fsGroup(v.Pod)
	if op.can[mountsGroup] || !op.object.changesGroup(&op.spec, group) {
		return nil
	}
	o := fsgroup.Options{
		Policy: fsgroup.Policy(*optional.OrZero(v.Pod.Spec.SecurityContext.FSGroupChangePolicy)),
		Slow: func(files int) {
			name := dir
			if rel, err := filepath.Rel(filepath.Dir(v.PodDir), dir); err == nil {
				name = rel
			}
			v.Warn(volume.ReasonPermissionChange, fmt.Sprintf("Setting volume ownership for %s, processed %d files.", name, files))
		},
	}
	err := fsgroup.Apply(ctx, dir, *group, o)
	if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
		return nil // all others are done, and the kubelet goes on, too
	}
	return err
}
