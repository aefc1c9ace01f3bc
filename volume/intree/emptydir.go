// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/projquota"
	"github.com/seed81659283/nodeagent/qos"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// emptyDir is the plugin for emptyDir volumes: directories, tmpfs and hugetlbfs.
type emptyDir struct {
	node *node
}

// fileMode converts a mode of the kernel to the mode of package os. The kernel's mode has permission bits and the sticky bit
// 01000.
func fileMode(mode int32) os.FileMode {
	m := os.FileMode(mode) & os.ModePerm
	if mode&0o1000 != 0 {
		m |= os.ModeSticky
	}
	return m
}

// SetUp creates the directory of the volume, or mounts the tmpfs or hugetlbfs. If the volume was set up before, SetUp does
// nothing, because containers may have changed the permissions.
func (d *emptyDir) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: vol.Dir, SELinuxRelabel: true}
	medium, ready := vol.Source.EmptyDir.Medium, readyFile(vol)
	if done, err := isReady(ready, vol.Dir, medium); done || err != nil {
		return m, err
	}
	mounted, err := d.mountFunc(vol, medium)
	if err != nil {
		return m, &volume.FinalError{Err: err}
	}
	if err := createDir(vol.Dir); err != nil {
		return m, err
	}
	if mounted != nil {
		if err := mountOnce(ctx, vol.Dir, mounted); err != nil {
			return m, err
		}
	}
	if mode := vol.Source.EmptyDir.Mode; mode != nil {
		if err := os.Chmod(vol.Dir, fileMode(*mode)); err != nil {
			return m, err
		}
	}
	if mounted == nil {
		if err := d.setQuota(ctx, vol); err != nil {
			return m, err
		}
	}
	if gid := fsGroup(vol.Pod); gid != nil {
		// The containers may still be able to use the volume: the kubelet continues too.
		_ = fsgroup.Apply(ctx, vol.Dir, *gid, fsgroup.Options{ReportSlow: slowReporter(vol)})
	}
	if err := ctx.Err(); err != nil {
		return m, err
	}
	return m, createReadyFile(ready)
}

// mountFunc returns a function that mounts a file system with this medium on a directory. It is nil for the disk.
func (d *emptyDir) mountFunc(vol volume.Volume, medium corev1.StorageMedium) (func(ctx context.Context, dir string) error, error) {
	switch {
	case medium == corev1.StorageMediumDefault:
		return nil, nil
	case medium == corev1.StorageMediumMemory:
		return tmpfsMounter(d.node.memorySize(vol.Pod, vol.Source.EmptyDir)), nil
	case isHugePages(medium):
		size, err := pageSize(vol.Pod, medium)
		if err != nil {
			return nil, err
		}
		return func(_ context.Context, dir string) error { return mount.Hugetlbfs(dir, size, 0) }, nil
	default:
		return nil, fmt.Errorf("unknown storage medium %.64q", medium)
	}
}

// TearDown unmounts and removes the directory of vol.
func (d *emptyDir) TearDown(ctx context.Context, vol volume.Volume) error {
	ready := readyFile(vol)
	for _, path := range []string{ready, filepath.Dir(ready)} {
		if err := notexist.Ignore(os.Remove(path)); err != nil {
			return err
		}
	}
	project := projquota.ProjectOf(vol.Dir)
	if err := d.node.removeVolume(ctx, vol); err != nil {
		return err
	}
	d.releaseQuota(vol, project)
	// The directories of a pod are empty after its last emptyDir is removed. Before that, os.Remove fails.
	_ = os.Remove(filepath.Dir(filepath.Dir(ready)))
	_ = os.Remove(filepath.Join(vol.PodDir, "plugins"))
	return nil
}

// Usage returns the usage of the volume. It reads the project quota, or the usage of the volume's own file system. If the
// volume has neither, Usage adds up the files.
func (d *emptyDir) Usage(ctx context.Context, vol volume.Volume) (volume.Usage, error) {
	if canUseQuota(vol.Pod) {
		if u, ok := d.node.quotaUsage(ctx, vol.Dir); ok {
			return u, nil
		}
	}
	return d.node.measureDir(ctx, vol.Dir)
}

// memorySize returns the maximum size of a tmpfs in bytes, by the node's allocatable memory, the pod's memory limit and the
// sizeLimit. Zero means none.
func (n *node) memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	size := int64(0)
	least := func(limit int64) {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	memory := n.nodeAllocatable()[corev1.ResourceMemory]
	least(memory.Value())
	if limit, all := qos.MemoryLimit(pod); all {
		least(limit)
	}
	if source != nil && source.SizeLimit != nil {
		least(source.SizeLimit.Value())
	}
	return size
}

// readyFile returns the path of an empty file that marks a volume as set up. SetUp then keeps permissions, which a container may
// have changed.
func readyFile(vol volume.Volume) string {
	return filepath.Join(vol.PodDir, "plugins", "kubernetes.io~empty-dir", vol.Name, "ready")
}

// isReady reports whether the emptyDir in dir was set up, which the file ready shows, and still exists.
func isReady(ready, dir string, medium corev1.StorageMedium) (bool, error) {
	if _, err := os.Lstat(ready); err != nil {
		return false, notexist.Ignore(err)
	}
	if medium == corev1.StorageMediumDefault {
		_, err := os.Lstat(dir)
		return err == nil, notexist.Ignore(err)
	}
	mounted, err := mount.IsMountPoint(dir) // not after a reboot
	return mounted, notexist.Ignore(err)
}

func createReadyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}
