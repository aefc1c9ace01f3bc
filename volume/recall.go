// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed81659283/nodeagent/internal/mount"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
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

// keep records the claim and PV of a volume, trimmed by claim.Trim: an agent that is started while its API server is away uses them.
func (v *recordedVolume) keep(c *claimed) {
	if c == nil {
		return
	}
	v.Claim, v.PV = claim.Trim(c.pvc, c.pv)
}

// kept returns what is noted, or nil.
func (v *recordedVolume) kept() *claimed {
	if v.Claim == nil || v.PV == nil {
		return nil
	}
	return &claimed{v.Claim, v.PV}
}

// validateKept returns an error for a claim that is not that of the volume.
func (v *recordedVolume) validateKept() error {
	if (v.Claim == nil) != (v.PV == nil) || v.PV != nil && v.PV.Name != v.spec() {
		return fmt.Errorf("volume %q: what is kept of its claim is not that of %q", v.Name, v.spec())
	}
	return nil
}

// recall fills in the claim of a volume that an earlier agent has made, as it is in the record. It reports whether it has: the volume
// can be used as it is then. The error is why nobody knows what it is now.
func (s *step) recall(err error) bool {
	_, unknown := errors.AsType[*unknownError](err)
	kept := s.before.recorded.kept()
	if !unknown || kept == nil || !s.volume.Recovered || s.volume.Update || !s.inPlace() {
		return false
	}
	s.volume.fill(kept)
	return true
}

// inPlace reports whether a volume that others may have meanwhile, if they are told to, is still mounted here: what was undone, as by a
// machine that was started again, is not made anew unasked. What is on this node alone, or has no device, can be.
func (s *step) inPlace() bool {
	v := &s.volume
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
