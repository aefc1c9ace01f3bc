// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// keep notes what a volume with a claim is made of: an agent that is started while nobody can be asked goes on with that. Who manages
// which field, and what is no part of either, is not kept.
func (v *recordedVolume) keep(c *claimed) {
	if c == nil {
		return
	}
	v.Claim, v.PV = c.pvc.DeepCopy(), c.pv.DeepCopy()
	for _, o := range []*metav1.ObjectMeta{&v.Claim.ObjectMeta, &v.PV.ObjectMeta} {
		o.ManagedFields = nil
		o.Annotations = maps.Clone(o.Annotations)
		delete(o.Annotations, corev1.LastAppliedConfigAnnotation)
	}
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
