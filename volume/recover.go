// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"io/fs"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// unknownError wraps the error of a request to which a server did not respond. So it is unknown whether the requested object
// exists or has changed.
type unknownError struct{ error }

// Unwrap returns the cause.
func (e *unknownError) Unwrap() error { return e.error }

// markUnknown wraps the error of a request to a server in an [unknownError], unless the requested object does not exist.
func markUnknown(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return &unknownError{err}
}

// useRecordedClaim stores the recorded claim and PV in pc.volume, if the API server is unavailable and the volume is still
// mounted. It reports whether it does.
func (pc *pluginCall) useRecordedClaim(err error) bool {
	_, unknown := errors.AsType[*unknownError](err)
	kept := recordedClaim(&pc.prior.recorded)
	if !unknown || kept == nil || !pc.volume.Recovered || pc.volume.Update || !pc.isStillMounted() {
		return false
	}
	pc.volume.fillClaim(kept)
	return true
}

// isStillMounted reports whether the volume is mounted on this node, or mapped as a block device. It also returns true for a
// volume that has no device.
func (pc *pluginCall) isStillMounted() bool {
	v := &pc.volume
	if v.Device.Name == "" {
		return true
	}
	// After a reboot the device may be attached to another node: only the API server can permit a new mount.
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
