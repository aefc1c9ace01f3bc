// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package blockmap makes a block device available to the containers of one pod, as MapBlockVolume of the kubelet
// (pkg/volume/util) does. It binds the device to a file, keeps that open so that no other device gets its name, and creates a
// link, which containers use. It attaches and stages no devices.
package blockmap

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
)

// Mapping has the paths by which one pod uses a block device. The agent owns their directories.
type Mapping struct {
	Bound string // bind mount of the device, named after the UID of the pod
	Link  string // symbolic link in the directory of the pod
}

// Map bind-mounts the block device at path, which may be a symbolic link, on m.Bound, and creates the symbolic link m.Link to
// the device. A loop device keeps the device open until Unmap, even if the agent exits. Map may be called again.
func (m Mapping) Map(ctx context.Context, path string) error {
	device, err := blockdev.Resolve(path)
	if err != nil {
		return err
	}
	if err := bindDevice(ctx, device, m.Bound); err != nil {
		return err
	}
	if err := replaceLink(device, m.Link); err != nil {
		return err
	}
	if err := blockdev.Hold(ctx, m.Bound); err != nil {
		return fmt.Errorf("hold device %s: %w", device, err)
	}
	return nil
}

// bindDevice bind-mounts a block device on the target file. It creates the file if it is missing, and replaces a bind mount
// of another device.
func bindDevice(ctx context.Context, device, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	switch {
	case err == nil:
		if err := f.Close(); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	if same, err := blockdev.Same(device, target); same || err != nil {
		return err
	}
	if err := blockdev.Release(ctx, target); err != nil { // a device that is held open cannot be unmounted
		return fmt.Errorf("release device: %w", err)
	}
	if err := new(mount.Unmounter).Unmount(ctx, target); err != nil {
		return err
	}
	return mount.Bind(device, target, mount.BindOptions{})
}

// replaceLink creates a symbolic link to target at path. It replaces an existing link, because a device may have another
// name after a reboot.
func replaceLink(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// Unmap reverts Map. It also removes the results of a Map that has failed.
func (m Mapping) Unmap(ctx context.Context) error {
	if err := blockdev.Release(ctx, m.Bound); err != nil {
		return fmt.Errorf("release device: %w", err)
	}
	if err := notexist.Ignore(os.Remove(m.Link)); err != nil {
		return err
	}
	if err := new(mount.Unmounter).Unmount(ctx, m.Bound); err != nil {
		return err
	}
	return notexist.Ignore(os.Remove(m.Bound))
}
