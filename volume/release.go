// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// Release tears down all volumes of the pod with this UID and removes its record, which may be of a previous agent process. No
// container of the pod may be running. Release blocks until this is done, ctx ends or Options.WaitTimeout has passed. After an
// error, Run continues the teardown, and Release can be called again. It returns nil for a pod without volumes.
func (v *Volumes) Release(ctx context.Context, uid string) error {
	if err := v.completeAdoption(ctx, uid); err != nil {
		return fmt.Errorf("release volumes of pod %s: %w", uid, err)
	}
	p, damaged := v.setUnmounted(uid)
	switch {
	case damaged != nil:
		return fmt.Errorf("release volumes of pod %s: record: %w", uid, damaged)
	case p == nil:
		return nil
	}
	v.requireRun()
	v.signal()
	shares := v.hasDevice(p)
	for done := false; !done; {
		err := v.awaitPhase(ctx, p, plan.Absent)
		if err == nil {
			done, err = v.removePod(p)
		}
		if err != nil {
			return fmt.Errorf("release volumes of pod %s: %w", p.name, err)
		}
	}
	if !shares {
		return nil
	}
	if uids := v.refusedPods(); len(uids) > 0 {
		v.ready.Call(uids...)
	}
	return nil
}

// hasDevice reports whether a volume of the pod has a device. If it has, Prepare may have refused other pods that use the
// device.
func (v *Volumes) hasDevice(state *podState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(state.volumes, func(e *entry) bool { return e.device != nil })
}

// refusedPods returns the UIDs of the pods that Prepare refused because of a claim.
func (v *Volumes) refusedPods() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.refused))
}

// setUnmounted marks all volumes of the pod for teardown. It returns a nil state, and the error damaged, if the pod has no
// readable record.
func (v *Volumes) setUnmounted(uid string) (state *podState, damaged error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.refused, uid)
	state = v.pods[uid]
	if state == nil {
		return nil, v.damaged[uid]
	}
	for _, e := range state.volumes {
		if e.plan.Desired != plan.Unmounted {
			e.plan.Desired, e.err = plan.Unmounted, nil
		}
		// Steps that are no longer needed are canceled.
		if e.plan.Step == plan.SetUp || e.plan.Step == plan.Remount {
			e.cancel()
		}
		if d := e.device; d != nil && d.plan.Step == plan.Stage && v.devices.isUnneeded(d) {
			d.cancel()
		}
	}
	return state, v.damaged[uid]
}

// removePod removes the record and the state of a pod whose volumes are torn down. It returns false if Run must unstage a device
// first.
func (v *Volumes) removePod(state *podState) (done bool, err error) {
	state.recording.Lock()
	defer state.recording.Unlock()
	v.mu.Lock()
	for _, e := range state.volumes {
		switch {
		case e.plan.Desired != plan.Unmounted || e.plan.Phase != plan.Absent || e.plan.Step != plan.None:
			v.mu.Unlock()
			return true, nil // Prepare was called for the pod again: keep the record
		case e.device != nil && e.device.isLastUser(state):
			v.mu.Unlock()
			return false, nil
		}
	}
	for _, e := range state.volumes {
		if e.device != nil {
			v.devices.removeUser(state, e.device) // another pod must not count this record as a remaining user
		}
	}
	v.mu.Unlock()
	err = state.recorded.Remove(state.dir)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		for _, e := range state.volumes {
			if e.device != nil {
				e.device = v.devices.addUser(state, e.recorded)
				e.plan.Device = &e.device.plan
			}
		}
		return false, fmt.Errorf("remove record: %w", err)
	}
	removed := make(map[*plan.Volume]bool, len(state.volumes))
	for _, e := range state.volumes {
		removed[&e.plan] = true
	}
	v.plan.Volumes = removeVolumes(v.plan.Volumes, removed)
	state.volumes, state.recorded = nil, record.Pod{}
	if v.pods[state.uid] == state {
		delete(v.pods, state.uid)
	}
	return true, nil
}

// removeVolumes returns the volumes without the removed volumes. It reuses the memory of its argument all.
func removeVolumes(all []*plan.Volume, removed map[*plan.Volume]bool) []*plan.Volume {
	kept := all[:0]
	for _, vol := range all {
		if !removed[vol] {
			kept = append(kept, vol)
		}
	}
	clear(all[len(kept):])
	return kept
}
