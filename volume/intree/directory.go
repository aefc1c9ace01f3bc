// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/rmtree"
	"github.com/seed81659283/nodeagent/volume"
)

// fsGroup returns the group that the files of a pod's volumes belong to, or nil.
func fsGroup(pod *corev1.Pod) *int64 { return optional.OrZero(pod.Spec.SecurityContext).FSGroup }

// slow returns what tells that a change of the group of files takes long, and from then on how far it is.
func slow(v volume.Volume) func(files int) {
	told := false
	dir, err := filepath.Rel(filepath.Dir(v.PodDir), v.Dir)
	if err != nil {
		dir = v.Name
	}
	return func(files int) {
		text := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", dir, files)
		if !told {
			text = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - %s", dir, aboutPolicy)
		}
		told = true
		v.Warn(volume.ReasonPermissionChange, text)
	}
}

// aboutPolicy is where Kubernetes explains fsGroupChangePolicy.
const aboutPolicy = "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"

// makeDir makes the directory of a volume that anybody may write to, whatever the umask.
func makeDir(dir string) error {
	err := os.Mkdir(dir, 0o777)
	switch {
	case errors.Is(err, os.ErrExist): // from before, or what is mounted there
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, 0o777)
}

// tmpfs returns how to mount a tmpfs of a size, whose pages are not swapped out where the kernel can do that.
func tmpfs(size int64) func(ctx context.Context, dir string) error {
	return func(_ context.Context, dir string) error {
		return mount.Tmpfs(dir, mount.TmpfsOptions{Size: size, NoSwap: true})
	}
}

// mountOnce mounts something on a directory, unless something is mounted there.
func mountOnce(ctx context.Context, dir string, do func(ctx context.Context, dir string) error) error {
	if mounted, err := mount.IsMountPoint(dir); mounted || err != nil {
		return err
	}
	return do(ctx, dir)
}

// remove unmounts and removes the directory of a volume. What a container has mounted in it for the host to see is unmounted as
// well: it is nobody's any more, and what is mounted is not removed.
func (n *node) remove(ctx context.Context, v volume.Volume) error {
	if mountsInside(v) {
		if err := n.unmountBelow(ctx, v.Dir); err != nil {
			return err
		}
	}
	if err := n.unmounter.Unmount(ctx, v.Dir); err != nil {
		return err
	}
	err := rmtree.Remove(v.Dir)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := n.unmountBelow(ctx, v.Dir); err != nil {
		return err
	}
	return rmtree.Remove(v.Dir)
}

// mountsInside reports whether containers of the pod could mount something in a volume for the host to see. Where only the record
// of the pod is left they could.
func mountsInside(v volume.Volume) bool {
	if v.Pod == nil {
		return true
	}
	for c := range containers.All(&v.Pod.Spec) {
		for i := range c.VolumeMounts {
			m := &c.VolumeMounts[i]
			if m.Name == v.Name && *optional.OrZero(m.MountPropagation) == corev1.MountPropagationBidirectional {
				return true
			}
		}
	}
	return false
}

// unmountBelow unmounts all that is mounted at a directory and below it, the deepest first.
func (n *node) unmountBelow(ctx context.Context, dir string) error {
	table, err := mount.Table()
	if err != nil {
		return err
	}
	for _, m := range mount.Below(table, dir) {
		if err := n.unmounter.Unmount(ctx, m.Point); err != nil {
			return err
		}
	}
	return nil
}
