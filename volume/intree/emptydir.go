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

// emptyDir makes directories, tmpfs and hugetlbfs that pods find empty.
type emptyDir struct {
	node *node
}

// fileMode returns the permissions of mode, with the sticky bit of 01000 as package os has it.
func fileMode(mode int32) os.FileMode {
	m := os.FileMode(mode) & os.ModePerm
	if mode&0o1000 != 0 {
		m |= os.ModeSticky
	}
	return m
}

// SetUp makes the directory, once: what containers do with it is theirs.
func (d *emptyDir) SetUp(ctx context.Context, v volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: v.Dir, SELinuxRelabel: true}
	medium, ready := v.Source.EmptyDir.Medium, readyFile(v)
	if done, err := isReady(ready, v.Dir, medium); done || err != nil {
		return m, err
	}
	mounted, err := d.filesystem(v, medium)
	if err != nil {
		return m, &volume.FinalError{Err: err}
	}
	if err := makeDir(v.Dir); err != nil {
		return m, err
	}
	if mounted != nil {
		if err := mountOnce(ctx, v.Dir, mounted); err != nil {
			return m, err
		}
	}
	if mode := v.Source.EmptyDir.Mode; mode != nil {
		if err := os.Chmod(v.Dir, fileMode(*mode)); err != nil {
			return m, err
		}
	}
	if mounted == nil {
		if err := d.limit(ctx, v); err != nil {
			return m, err
		}
	}
	if gid := fsGroup(v.Pod); gid != nil {
		// The containers may still be able to use it: the kubelet goes on, too.
		_ = fsgroup.Apply(ctx, v.Dir, *gid, fsgroup.Options{Slow: slow(v)})
	}
	if err := ctx.Err(); err != nil {
		return m, err
	}
	return m, setReady(ready)
}

// filesystem returns how to mount what is wanted on a directory; nil for the directory itself.
func (d *emptyDir) filesystem(v volume.Volume, medium corev1.StorageMedium) (func(ctx context.Context, dir string) error, error) {
	switch {
	case medium == corev1.StorageMediumDefault:
		return nil, nil
	case medium == corev1.StorageMediumMemory:
		return tmpfs(d.node.memorySize(v.Pod, v.Source.EmptyDir)), nil
	case isHugePages(medium):
		size, err := pageSize(v.Pod, medium)
		if err != nil {
			return nil, err
		}
		return func(_ context.Context, dir string) error { return mount.Hugetlbfs(dir, size, 0) }, nil
	default:
		return nil, fmt.Errorf("unknown storage medium %.64q", medium)
	}
}

// TearDown unmounts and removes the directory.
func (d *emptyDir) TearDown(ctx context.Context, v volume.Volume) error {
	ready := readyFile(v)
	for _, path := range []string{ready, filepath.Dir(ready)} {
		if err := notexist.Ignore(os.Remove(path)); err != nil {
			return err
		}
	}
	project := projquota.Of(v.Dir)
	if err := d.node.remove(ctx, v); err != nil {
		return err
	}
	d.unlimit(v, project)
	// Of the last one of a pod nothing is left. As long as there are others, these are not empty.
	_ = os.Remove(filepath.Dir(filepath.Dir(ready)))
	_ = os.Remove(filepath.Join(v.PodDir, "plugins"))
	return nil
}

// Usage measures the file system of a volume that has its own, what its quota counts, and else what is in the directory.
func (d *emptyDir) Usage(ctx context.Context, v volume.Volume) (volume.Usage, error) {
	if mayLimit(v.Pod) {
		if u, ok := d.node.quotaUsage(ctx, v.Dir); ok {
			return u, nil
		}
	}
	return d.node.usage(ctx, v.Dir)
}

// memorySize returns how large a tmpfs may be: the least of what the node has for pods, of the limit of the pod, and of the limit of
// the volume. Zero is no limit.
func (n *node) memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	size := int64(0)
	least := func(limit int64) {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	memory := n.allocatable()[corev1.ResourceMemory]
	least(memory.Value())
	if limit, all := qos.MemoryLimit(pod); all {
		least(limit)
	}
	if source != nil && source.SizeLimit != nil {
		least(source.SizeLimit.Value())
	}
	return size
}

// readyFile returns the file that says that an emptyDir was set up, so that it is not done again, with permissions that a
// container may have changed.
func readyFile(v volume.Volume) string {
	return filepath.Join(v.PodDir, "plugins", "kubernetes.io~empty-dir", v.Name, "ready")
}

// isReady reports whether an emptyDir was set up and is still there: after a reboot a tmpfs is not.
func isReady(ready, dir string, medium corev1.StorageMedium) (bool, error) {
	if _, err := os.Lstat(ready); err != nil {
		return false, notexist.Ignore(err)
	}
	if medium == corev1.StorageMediumDefault {
		_, err := os.Lstat(dir)
		return err == nil, notexist.Ignore(err)
	}
	mounted, err := mount.IsMountPoint(dir)
	return mounted, notexist.Ignore(err)
}

func setReady(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}
