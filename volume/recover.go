// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// unknownError is an error that says nothing of a volume: nobody could be asked.
type unknownError struct{ error }

// Unwrap returns the cause.
func (e *unknownError) Unwrap() error { return e.error }

// unknown marks an error of somebody who was asked, unless it says that there is no such object.
func unknown(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &unknownError{err}
}

// useRecordedClaim uses the claim in the record, if err says that a server did not answer and a previous agent has set up the volume. It
// reports whether it does: the volume is then usable as it is.
func (pc *pluginCall) useRecordedClaim(err error) bool {
	_, unknown := errors.AsType[*unknownError](err)
	kept := recordedClaim(&pc.before.recorded)
	if !unknown || kept == nil || !pc.volume.Recovered || pc.volume.Update || !pc.isStillMounted() {
		return false
	}
	pc.volume.fill(kept)
	return true
}

// isStillMounted reports whether the volume is still mounted or mapped here, or has no device. After a reboot the device is unmounted and may
// be attached to another node: only the API server can permit a new mount.
func (pc *pluginCall) isStillMounted() bool {
	v := &pc.volume
	if v.Device.Name == "" {
		return true
	}
	if v.Block {
		mounted, err := mount.IsMountPoint(mapping(*v).Bound)
		return mounted && err == nil
	}
	if staged, err := mount.IsMountPoint(v.StagingDir); v.StagingDir != "" && staged && err == nil {
		return true
	}
	table, err := mount.Table()
	return err == nil && len(mount.Below(table, v.Dir)) > 0
}
