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

// fsGroup returns the fsGroup of a pod, or nil.
func fsGroup(pod *corev1.Pod) *int64 { return optional.OrZero(pod.Spec.SecurityContext).FSGroup }

// slowReporter returns a function for fsgroup.Options.ReportSlow, which records events about the pod with the number of files
// changed so far.
func slowReporter(vol volume.Volume) func(files int) {
	told := false
	dir, err := filepath.Rel(filepath.Dir(vol.PodDir), vol.Dir)
	if err != nil {
		dir = vol.Name
	}
	return func(files int) {
		text := fmt.Sprintf("Setting volume ownership for %s, processed %d files.", dir, files)
		if !told {
			text = fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - %s", dir, aboutPolicy)
		}
		told = true
		vol.Warn(volume.ReasonPermissionChange, text)
	}
}

// aboutPolicy is the page of kubernetes.io about fsGroupChangePolicy.
const aboutPolicy = "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"

// createDir creates a directory with mode 0777, regardless of the umask. It does not change an existing directory.
func createDir(dir string) error {
	err := os.Mkdir(dir, 0o777)
	switch {
	case errors.Is(err, os.ErrExist): // from an earlier set-up, or a file system is mounted there
		return nil
	case err != nil:
		return err
	}
	return os.Chmod(dir, 0o777)
}

// tmpfsMounter returns a function that mounts a tmpfs, not swapped if possible, with a maximum size in bytes or no limit (zero).
func tmpfsMounter(size int64) func(ctx context.Context, dir string) error {
	return func(_ context.Context, dir string) error {
		return mount.Tmpfs(dir, mount.TmpfsOptions{Size: size, NoSwap: true})
	}
}

// mountOnce mounts a file system on the directory by calling do. If the directory is a mount point already, mountOnce does
// nothing.
func mountOnce(ctx context.Context, dir string, do func(ctx context.Context, dir string) error) error {
	if mounted, err := mount.IsMountPoint(dir); mounted || err != nil {
		return err
	}
	return do(ctx, dir)
}

// removeVolume unmounts the volume and removes its directory. It first unmounts file systems that containers have mounted
// inside the volume with bidirectional mount propagation.
func (n *node) removeVolume(ctx context.Context, vol volume.Volume) error {
	if mayHaveMounts(vol) {
		if err := n.unmountBelow(ctx, vol.Dir); err != nil {
			return err
		}
	}
	if err := n.unmounter.Unmount(ctx, vol.Dir); err != nil {
		return err
	}
	err := rmtree.Remove(vol.Dir)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if err := n.unmountBelow(ctx, vol.Dir); err != nil {
		return err
	}
	return rmtree.Remove(vol.Dir)
}

// mayHaveMounts reports whether a container may have mounted file systems inside the volume, by bidirectional mount propagation.
func mayHaveMounts(vol volume.Volume) bool {
	if vol.Pod == nil {
		return true
	}
	for c := range containers.All(&vol.Pod.Spec) {
		for i := range c.VolumeMounts {
			m := &c.VolumeMounts[i]
			if m.Name == vol.Name && *optional.OrZero(m.MountPropagation) == corev1.MountPropagationBidirectional {
				return true
			}
		}
	}
	return false
}

// unmountBelow unmounts all file systems on the directory and below it. Inner mounts are unmounted before outer mounts.
func (n *node) unmountBelow(ctx context.Context, dir string) error {
	table, err := mount.ReadTable()
	if err != nil {
		return err
	}
	for _, m := range mount.MountsBelow(table, dir) {
		if err := n.unmounter.Unmount(ctx, m.Point); err != nil {
			return err
		}
	}
	return nil
}
