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

// Release tears down all volumes of a pod of which nothing runs any more, and removes what is on disk about them, also for a
// pod of which only the record is left. It returns when that is done, nil also where there is nothing. After an error it is
// called again: the teardown goes on meanwhile.
func (v *Volumes) Release(ctx context.Context, uid string) error {
	p, damaged := v.setUnmounted(uid)
	switch {
	case damaged != nil:
		return fmt.Errorf("release volumes of pod %s: record: %w", uid, damaged)
	case p == nil:
		return nil
	}
	v.needRun()
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

// hasDevice reports whether a pod has a volume with a device, which may be refused to other pods while it is in use.
func (v *Volumes) hasDevice(p *podState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(p.volumes, func(e *entry) bool { return e.device != nil })
}

// refusedPods returns the UIDs of the pods that cannot use one of their claims so far.
func (v *Volumes) refusedPods() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.refused))
}

// setUnmounted marks all volumes of a pod as unmounted, and cancels steps that nothing needs any more.
func (v *Volumes) setUnmounted(uid string) (p *podState, damaged error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.refused, uid)
	p = v.pods[uid]
	if p == nil {
		return nil, v.damaged[uid]
	}
	for _, e := range p.volumes {
		if e.plan.Desired != plan.Unmounted {
			e.plan.Desired, e.err = plan.Unmounted, nil
		}
		if e.plan.Step == plan.SetUp || e.plan.Step == plan.Remount {
			e.cancel()
		}
		if d := e.device; d != nil && d.plan.Step == plan.Stage && v.devices.isUnwanted(d) {
			d.cancel()
		}
	}
	return p, v.damaged[uid]
}

// removePod removes the record of a pod whose volumes are torn down, unless they are desired again. done is false if the pod has become the
// last user of a device, which is to be unstaged first.
func (v *Volumes) removePod(p *podState) (done bool, err error) {
	p.recording.Lock()
	defer p.recording.Unlock()
	v.mu.Lock()
	for _, e := range p.volumes {
		switch {
		case e.plan.Desired != plan.Unmounted || e.plan.Phase != plan.Absent || e.plan.Step != plan.None:
			v.mu.Unlock()
			return true, nil
		case e.device != nil && e.device.isLastUser(p):
			v.mu.Unlock()
			return false, nil
		}
	}
	for _, e := range p.volumes {
		if e.device != nil {
			v.devices.removeUser(p, e.device) // so that no other pod takes this record for one that stays
		}
	}
	v.mu.Unlock()
	err = p.recorded.Remove(p.dir)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		for _, e := range p.volumes {
			if e.device != nil {
				e.device = v.devices.addUser(p, e.recorded)
				e.plan.Device = &e.device.plan
			}
		}
		return false, fmt.Errorf("remove record: %w", err)
	}
	gone := make(map[*plan.Volume]bool, len(p.volumes))
	for _, e := range p.volumes {
		gone[&e.plan] = true
	}
	v.plan.Volumes = deleteAll(v.plan.Volumes, gone)
	p.volumes, p.recorded = nil, record.Pod{}
	if v.pods[p.uid] == p {
		delete(v.pods, p.uid)
	}
	return true, nil
}

// deleteAll returns the volumes without those that are gone.
func deleteAll(all []*plan.Volume, gone map[*plan.Volume]bool) []*plan.Volume {
	kept := all[:0]
	for _, vol := range all {
		if !gone[vol] {
			kept = append(kept, vol)
		}
	}
	clear(all[len(kept):])
	return kept
}
