// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package blockmap makes a block device known by a pod: a bind of it, which is held open so that no other device gets its name, and a
// link, which is what containers get (pkg/volume/util, MapBlockVolume). It knows neither plugins nor records.
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

// Mapping is where a block device is made known by a pod. Its directories belong to the agent.
type Mapping struct {
	Bound string // the bind of the device, in a directory of the volume by the UID of the pod
	Link  string // in the directory of the pod
}

// Map makes a device known to which a path leads, through links. It is idempotent.
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

// bindDevice binds a device on a file, which it makes. What is bound there and is another device is taken away.
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
	if err := blockdev.Release(ctx, target); err != nil { // what is held cannot be unmounted
		return fmt.Errorf("release device: %w", err)
	}
	if err := new(mount.Unmounter).Unmount(ctx, target); err != nil {
		return err
	}
	return mount.Bind(device, target, mount.BindOptions{})
}

// replaceLink makes a link, in place of an earlier one: after a reboot a device may have another name.
func replaceLink(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return os.Symlink(target, path)
}

// Unmap undoes Map, of which there may be a part.
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
