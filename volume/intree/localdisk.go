// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/blockdev"
	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/fsgroup"
)

// warnAlreadyMounted is the reason of the event for a volume whose files have the fsGroup of another pod.
const warnAlreadyMounted = "AlreadyMountedVolume"

// defaultFS is the file system that is created on an empty device, unless the PV names one.
const defaultFS = "ext4"

// local is the plugin for local PVs, which are directories or block devices of the node (pkg/volume/local). A directory is
// bind-mounted for each pod. The file system of a block device is mounted once and bind-mounted for each pod. For a block volume,
// the device itself is the volume.
type local struct {
	node *node
}

var (
	_ volume.Stager        = (*local)(nil)
	_ volume.DeviceFinder  = (*local)(nil)
	_ volume.Expander      = (*local)(nil)
	_ volume.UsageProvider = (*local)(nil)
)

// Device returns a device with the name of the volume's PV. It has the same directories as in the kubelet.
func (l *local) Device(_ context.Context, vol volume.Volume) (volume.Device, error) {
	if vol.PV == nil || vol.PV.Spec.Local == nil || vol.PV.Spec.Local.Path == "" {
		return volume.Device{}, errors.New("the PV has no local.path")
	}
	if wrong := podfield.CheckNoBacksteps(vol.PV.Spec.Local.Path); len(wrong) > 0 || !filepath.IsAbs(vol.PV.Spec.Local.Path) {
		return volume.Device{}, fmt.Errorf("invalid local.path %.256q of the PV", vol.PV.Spec.Local.Path)
	}
	return l.FindDevice(vol)
}

// FindDevice returns a device with the name of the PV, which is vol.SpecName. It reads no file.
func (l *local) FindDevice(vol volume.Volume) (volume.Device, error) {
	d := volume.Device{Name: vol.SpecName}
	if vol.Block {
		d.MapDir = filepath.Join("kubernetes.io~local-volume", "volumeDevices", vol.SpecName)
	} else {
		d.Dir = filepath.Join(volume.Local, "mounts", vol.SpecName)
	}
	return d, nil
}

// isDevice reports whether the local path of vol.PV is a block device, otherwise it is a directory. It returns when ctx ends.
func (l *local) isDevice(ctx context.Context, vol volume.Volume) (bool, error) {
	path, found := vol.PV.Spec.Local.Path, make(chan fs.FileMode, 1)
	err := l.node.calls.Do(ctx, path, func() error {
		info, err := os.Stat(path)
		if err == nil {
			found <- info.Mode()
		}
		return err
	})
	if err != nil {
		return false, err
	}
	switch mode := <-found; {
	case mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
		return true, nil
	case mode.IsDir():
		return false, nil
	default:
		return false, fmt.Errorf("local volume %s: only directory and block device are supported", path)
	}
}

// Stage mounts the block device of the volume at vol.StagingDir. If the device is empty, Stage first creates a file system
// on it. It does nothing for a directory or a block volume.
func (l *local) Stage(ctx context.Context, vol volume.Volume) error {
	if vol.Block {
		return nil
	}
	is, err := l.isDevice(ctx, vol)
	if err != nil || !is {
		return err
	}
	if err := os.MkdirAll(vol.StagingDir, 0o750); err != nil {
		return err
	}
	source, dir := vol.PV.Spec.Local, vol.StagingDir
	if mounted, err := mount.IsMountPoint(dir); mounted || err != nil {
		return err
	}
	kind := *optional.First(source.FSType, new(defaultFS))
	if err := blockdev.Format(ctx, source.Path, kind, vol.ReadOnly); err != nil {
		return err
	}
	options := vol.MountOptions
	if vol.ReadOnly {
		options = append([]string{"ro"}, options...)
	}
	return l.node.calls.Do(ctx, dir, func() error { return mount.Disk(source.Path, dir, kind, options) })
}

// Unstage unmounts the file system of the device of vol.
func (l *local) Unstage(ctx context.Context, vol volume.Volume) error {
	if vol.StagingDir == "" {
		return nil
	}
	if err := l.node.unmounter.Unmount(ctx, vol.StagingDir); err != nil {
		return err
	}
	return notexist.Ignore(os.Remove(vol.StagingDir))
}

// SetUp bind-mounts the local directory, or the staged file system of the device, at vol.Dir. It changes the group of the files
// to the pod's fsGroup, unless another pod uses the volume. For a block volume it returns the path of the device.
func (l *local) SetUp(ctx context.Context, vol volume.Volume) (volume.Mount, error) {
	m := volume.Mount{HostPath: vol.Dir, ReadOnly: vol.ReadOnly, SELinuxRelabel: true}
	is, err := l.isDevice(ctx, vol)
	switch {
	case err != nil:
		return m, err
	case vol.Block && !is:
		return m, &volume.FinalError{Err: fmt.Errorf("local volume %s is not a block device", vol.PV.Spec.Local.Path)}
	case vol.Block:
		m.HostPath = vol.PV.Spec.Local.Path
		return m, nil
	}
	source := vol.PV.Spec.Local.Path
	if is {
		source = vol.StagingDir
	}
	mounted, err := mount.IsMountPoint(vol.Dir)
	switch {
	case notexist.Ignore(err) != nil:
		return m, err
	case mounted && vol.Update:
		return m, nil
	case mounted: // an interrupted set-up may have mounted it, but not changed the group
		return m, l.applyFSGroup(ctx, vol, vol.Recovered)
	}
	if vol.UsedByOtherPod {
		l.warnOtherGroup(ctx, vol, source)
	}
	if err := os.Mkdir(vol.Dir, 0o750); err != nil && !errors.Is(err, os.ErrExist) {
		return m, err
	}
	if err := l.node.calls.Do(ctx, source, func() error { return bindVolume(source, vol) }); err != nil {
		return m, err
	}
	return m, l.applyFSGroup(ctx, vol, false)
}

// bindVolume bind-mounts the directory source at vol.Dir, with the mount options of the PV that a bind mount can have, such as
// noexec.
func bindVolume(source string, vol volume.Volume) error {
	o := mount.BindOptions{Attrs: mount.ParseAttrs(vol.MountOptions)}
	if vol.ReadOnly {
		o.Attrs |= mount.ReadOnly
	}
	return mount.Bind(source, vol.Dir, o)
}

// applyFSGroup changes the group of the files to the pod's fsGroup, unless another pod uses the volume. used means that
// containers may already use it.
func (l *local) applyFSGroup(ctx context.Context, vol volume.Volume, used bool) error {
	gid := fsGroup(vol.Pod)
	if gid == nil || vol.ReadOnly || vol.UsedByOtherPod {
		return nil
	}
	policy := fsgroup.Policy(*optional.OrZero(optional.OrZero(vol.Pod.Spec.SecurityContext).FSGroupChangePolicy))
	// Apply changes the root directory last, so an earlier change has completed if the root has the group.
	if used {
		policy = fsgroup.OnRootMismatch
	}
	err := fsgroup.Apply(ctx, vol.Dir, *gid, fsgroup.Options{Policy: policy, ReportSlow: slowReporter(vol)})
	if _, ok := errors.AsType[*fsgroup.FilesError](err); ok {
		return nil // all other files are changed; the kubelet continues too
	}
	return err
}

// warnOtherGroup records a warning event if the group of the directory source, set by another pod, is not the pod's fsGroup.
func (l *local) warnOtherGroup(ctx context.Context, vol volume.Volume, source string) {
	gid := fsGroup(vol.Pod)
	if gid == nil {
		return
	}
	found := make(chan int64, 1)
	err := l.node.calls.Do(ctx, source, func() error {
		now, err := fileGroup(source)
		found <- now
		return err
	})
	if err != nil {
		return
	}
	if now := <-found; now != *gid {
		vol.Warn(warnAlreadyMounted, fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", *gid, vol.SpecName, now))
	}
}

// TearDown unmounts vol.Dir, a bind mount. It deletes no files of the volume.
func (l *local) TearDown(ctx context.Context, vol volume.Volume) error {
	if vol.Block {
		return nil
	}
	if err := l.node.binds.Unmount(ctx, vol.Dir); err != nil {
		return err
	}
	return notexist.Ignore(os.Remove(vol.Dir))
}

// NodeExpand grows the file system of the volume to the size of its device. It does nothing for a directory or a block
// volume.
func (l *local) NodeExpand(ctx context.Context, vol volume.Volume, _ volume.Expansion) error {
	if vol.Block {
		return nil
	}
	is, err := l.isDevice(ctx, vol)
	if err != nil || !is {
		return err
	}
	return blockdev.Grow(ctx, vol.PV.Spec.Local.Path, vol.StagingDir)
}

// Usage returns the usage of the volume's file system. For a block volume it returns only the capacity, which is the size of
// the device.
func (l *local) Usage(ctx context.Context, vol volume.Volume) (volume.Usage, error) {
	if vol.Block {
		size, err := blockdev.Size(vol.Dir)
		return volume.Usage{CapacityBytes: size}, err
	}
	return l.node.statFilesystem(ctx, vol.Dir)
}
