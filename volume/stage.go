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

// attachError is the error of an [Attacher]: the volume was not attached.
type attachError struct{ Err error }

// Error returns "wait for attach: " and the text of the cause.
func (e *attachError) Error() string { return "wait for attach: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *attachError) Unwrap() error { return e.Err }

// stageDevice waits until the device of the volume is attached, if necessary, and stages it. It returns the device path, if
// known.
func (pc *pluginCall) stageDevice(ctx context.Context, plugin Plugin) (path string, err error) {
	stager, ok := plugin.(Stager)
	if !ok {
		return "", fmt.Errorf("plugin %s cannot stage volumes", pc.volume.Plugin)
	}
	if _, err := pc.reloadClaim(ctx); err != nil {
		if pc.useRecordedClaim(err) {
			pc.opts.Logger.Info("claim is unavailable: the staged volume is used", "pod", pc.pod, "volume", pc.volume.Name, "error", err)
			return "", nil
		}
		return "", pc.markFinal(err)
	}
	if err := pc.checkUsable(); err != nil {
		return "", pc.markFinal(err)
	}
	if pc.mustAttach() {
		limited, cancel := context.WithTimeout(ctx, pc.opts.AttachTimeout)
		path, err = pc.opts.Attacher.WaitForAttach(limited, pc.volume)
		cancel()
		if err != nil {
			return "", pc.markFinal(&attachError{err})
		}
		pc.volume.DevicePath = path
	}
	ctx, cancel := context.WithTimeout(ctx, pc.opts.StepTimeout)
	defer cancel()
	if dir := pc.volume.StagingDir; dir != "" {
		if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
			return "", err
		}
	}
	return path, stager.Stage(ctx, pc.volume)
}

// mustAttach reports whether stageDevice must wait for the Attacher. This is the case if the device is attachable and
// Options.Attacher is set.
func (pc *pluginCall) mustAttach() bool {
	return pc.volume.Device.Attachable && pc.opts.Attacher != nil
}

// unstageDevice unstages the device of the volume. It returns an error if its file system is also mounted at another path.
func (pc *pluginCall) unstageDevice(ctx context.Context, plugin Plugin) error {
	stager, ok := plugin.(Stager)
	if !ok {
		return fmt.Errorf("plugin %s cannot stage volumes", pc.volume.Plugin)
	}
	if dir := pc.volume.StagingDir; dir != "" && !pc.volume.Block {
		if err := checkUnreferenced(dir); err != nil {
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

// checkUnreferenced returns an error if the file system that is mounted on a directory is also mounted on another path.
func checkUnreferenced(dir string) error {
	if mounted, err := mount.IsMountPoint(dir); err != nil || !mounted {
		return notexist.Ignore(err)
	}
	table, err := mount.ReadTable()
	if err != nil {
		return err
	}
	if others := mount.OtherMounts(table, dir); len(others) > 0 {
		return fmt.Errorf("file system of %s is also mounted at %s, and at %d paths in all", dir, others[0].Point, len(others))
	}
	return nil
}
