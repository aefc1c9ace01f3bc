// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// adoptionGrace limits how long after New volumesInUse is unknown because volumes found on disk are not adopted.
const adoptionGrace = 10 * time.Minute

// adoptionBackOff returns the delays between attempts to adopt the volumes of a pod, such as while its claims cannot be read.
func adoptionBackOff() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }

// adoption is the state of a pod whose volumes were found on disk. Volumes.mu guards it.
type adoption struct {
	found        record.Found
	unidentified []string           // of found.Others: directories of volumes that only the pod spec describes
	cancel       context.CancelFunc // cancels the running attempt; nil: none is running
	due          time.Time          // of the next attempt
	delay        time.Duration      // before the next attempt; zero: no attempt has failed
}

// findVolumes adds the volumes of pods without a record. Only New calls it.
func (v *Volumes) findVolumes() error {
	if !v.opts.AdoptUnrecorded {
		return nil
	}
	all, damaged, err := record.Find(v.opts.Root, func(plugin string) bool {
		return slices.Contains([]string{EmptyDir, ConfigMap, Secret, DownwardAPI, Projected}, plugin) && v.opts.Plugins[plugin] != nil
	})
	if err != nil {
		return err
	}
	maps.Copy(v.damaged, damaged)
	for _, found := range all {
		p := v.newPod(found.UID, found.Name)
		p.recorded, p.adoption = found.Pod, &adoption{found: found}
		for _, known := range found.Volumes {
			v.addVolume(p, known).markUncertain()
		}
		p.adoption.unidentified = v.identifyVolumes(p, found.Others)
		v.pods[found.UID] = p
	}
	return nil
}

// markUncertain marks a volume and its device as possibly set up by a previous agent process or by another program.
func (e *entry) markUncertain() {
	e.plan.Phase, e.plan.Recovered = plan.Uncertain, true
	if e.device != nil && e.device.plan.Phase == plan.Absent {
		e.device.plan.Phase, e.device.plan.Recovered = plan.Uncertain, true
	}
}

// isFound reports whether dir is one of the directories on disk whose volumes have other names in the pod spec. a may be nil.
func (a *adoption) isFound(dir string) bool { return a != nil && slices.Contains(a.found.Others, dir) }

// startAdoptions starts a goroutine in wg for each listed pod whose volumes are to be adopted now. wake is the time of the next adoption; zero: there
// is none. The caller holds v.mu.
func (v *Volumes) startAdoptions(ctx context.Context, wg *sync.WaitGroup, now time.Time) (wake time.Time) {
	for _, p := range v.pods {
		a := p.adoption
		switch {
		case a == nil || p.spec == nil || a.cancel != nil:
		case a.due.After(now):
			if wake.IsZero() || a.due.Before(wake) {
				wake = a.due
			}
		default:
			attempt, cancel := context.WithCancel(ctx)
			a.cancel = cancel
			wg.Go(func() {
				defer cancel()
				v.adoptVolumes(attempt, p, a)
			})
		}
	}
	return wake
}

// adoptVolumes records the volumes of a pod, so that Run updates them and Release tears them down. It does nothing if Prepare or Release has
// completed the adoption.
func (v *Volumes) adoptVolumes(ctx context.Context, state *podState, a *adoption) {
	state.recording.Lock()
	v.mu.Lock()
	due, spec := state.adoption == a, state.spec
	v.mu.Unlock()
	var err error
	if due {
		_, err = v.recordVolumes(ctx, state, spec)
	}
	state.recording.Unlock()
	v.mu.Lock()
	a.cancel = nil
	if err != nil {
		a.delay = adoptionBackOff().Next(a.delay)
		a.due = time.Now().Add(a.delay)
	}
	v.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		v.events.reportError(fmt.Errorf("adopt volumes of pod %s: %w", state.name, err))
	}
	v.signal()
}

// completeAdoption adopts the volumes of a pod before its release. It returns an error if only the pod spec describes some volumes, and no source has
// listed the pod. For a pod that no source lists, it writes no record: a restarted agent finds the volumes again.
func (v *Volumes) completeAdoption(ctx context.Context, uid string) error {
	v.mu.Lock()
	p := v.pods[uid]
	if p == nil || p.adoption == nil {
		v.mu.Unlock()
		return nil
	}
	if p.adoption.cancel != nil {
		p.adoption.cancel()
	}
	v.mu.Unlock()
	p.recording.Lock() // after the attempt that was canceled, which would set the volumes up again
	defer p.recording.Unlock()
	v.mu.Lock()
	a, spec := p.adoption, p.spec
	if a != nil && (len(a.found.Others) == 0 || spec == nil && len(a.unidentified) == 0) { // the directories have all that a teardown needs
		p.takeIdentified()
		p.adoption, a = nil, nil
	}
	v.mu.Unlock()
	switch {
	case a == nil:
		return nil
	case spec == nil:
		return fmt.Errorf("volumes %s were set up by another program, and the pod is not known: unmount them, and remove their directories",
			strings.Join(a.unidentified[:min(len(a.unidentified), 10)], ", "))
	}
	_, err := v.recordVolumes(ctx, p, spec)
	return err
}

// mayMissDevices reports whether attached volumes were found on disk and are not adopted yet. After adoptionGrace it returns false, because
// controllers need the other volumes. A pod whose volumes are not adopted is not released, and stays in the API server.
func (v *Volumes) mayMissDevices() bool {
	if time.Since(v.created) >= adoptionGrace {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pods {
		if a := p.adoption; a != nil && len(a.found.Others) > 0 {
			return true
		}
	}
	return false
}

// isAdoptionPending reports whether volumes of the pod were found on disk and are not recorded yet.
func (v *Volumes) isAdoptionPending(state *podState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return state.adoption != nil
}
