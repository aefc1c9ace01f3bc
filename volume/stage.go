// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/notexist"
)

// attachError is why a volume is not known to be attached.
type attachError struct{ Err error }

// Error returns the text of the cause, with what was waited for.
func (e *attachError) Error() string { return "wait for attach: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *attachError) Unwrap() error { return e.Err }

// stage makes a device ready for its volumes.
func (pc *pluginCall) stage(ctx context.Context, plugin Plugin) (path string, err error) {
	stager, ok := plugin.(Stager)
	if !ok {
		return "", fmt.Errorf("plugin %s stages nothing", pc.volume.Plugin)
	}
	if _, err := pc.reloadClaim(ctx); err != nil {
		if pc.useRecordedClaim(err) {
			pc.opts.Logger.Info("claim is not known: the volume is used as it is staged", "pod", pc.pod, "volume", pc.volume.Name, "error", err)
			return "", nil
		}
		return "", pc.nothingMade(err)
	}
	if err := pc.checkUsable(); err != nil {
		return "", pc.nothingMade(err)
	}
	if pc.attaches() {
		limited, cancel := context.WithTimeout(ctx, pc.opts.AttachTimeout)
		path, err = pc.opts.Attacher.WaitForAttach(limited, pc.volume)
		cancel()
		if err != nil {
			return "", pc.nothingMade(&attachError{err})
		}
		pc.volume.DevicePath = path
	}
	ctx, cancel := context.WithTimeout(ctx, pc.opts.Timeout)
	defer cancel()
	if dir := pc.volume.StagingDir; dir != "" {
		if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
			return "", err
		}
	}
	return path, stager.Stage(ctx, pc.volume)
}

// attaches reports whether the volume has to be attached first.
func (pc *pluginCall) attaches() bool { return pc.volume.Device.Attachable && pc.opts.Attacher != nil }

// unstage removes what is made of a device, unless somebody has it mounted elsewhere: a file system that is used must not lose its
// device.
func (pc *pluginCall) unstage(ctx context.Context, plugin Plugin) error {
	stager, ok := plugin.(Stager)
	if !ok {
		return fmt.Errorf("plugin %s stages nothing", pc.volume.Plugin)
	}
	if dir := pc.volume.StagingDir; dir != "" && !pc.volume.Block {
		if err := unreferenced(dir); err != nil {
			return err
		}
	}
	if err := stager.Unstage(ctx, pc.volume); err != nil {
		return err
	}
	if d := pc.volume.Device.MapDir; d != "" {
		return notexist.Ignore(os.Remove(filepath.Join(pc.volume.PluginDir, d)))
	}
	return nil
}

// unreferenced returns an error if what is mounted on a directory is mounted elsewhere, too.
func unreferenced(dir string) error {
	if mounted, err := mount.IsMountPoint(dir); err != nil || !mounted {
		return notexist.Ignore(err)
	}
	table, err := mount.Table()
	if err != nil {
		return err
	}
	if others := mount.Others(table, dir); len(others) > 0 {
		return fmt.Errorf("%s is still mounted at %s, of %d", dir, others[0].Point, len(others))
	}
	return nil
}
