// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// unknownError marks an error that leaves the state of a volume unknown, because a server did not respond.
type unknownError struct{ error }

// Unwrap returns the cause.
func (e *unknownError) Unwrap() error { return e.error }

// markUnknown marks the error of a request to a server, except "does not exist", as an [unknownError]. It returns nil for nil.
func markUnknown(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &unknownError{err}
}

// useRecordedClaim applies the claim in the record to the call, and reports true, if err is an [unknownError] and a previous
// agent has set up the volume, which is still mounted.
func (pc *pluginCall) useRecordedClaim(err error) bool {
	_, unknown := errors.AsType[*unknownError](err)
	kept := recordedClaim(&pc.prior.recorded)
	if !unknown || kept == nil || !pc.volume.Recovered || pc.volume.Update || !pc.isStillMounted() {
		return false
	}
	pc.volume.fillClaim(kept)
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
		mounted, err := mount.IsMountPoint(blockMapping(*v).Bound)
		return mounted && err == nil
	}
	if staged, err := mount.IsMountPoint(v.StagingDir); v.StagingDir != "" && staged && err == nil {
		return true
	}
	table, err := mount.ReadTable()
	return err == nil && len(mount.MountsBelow(table, v.Dir)) > 0
}
