// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// adoptionGrace is the time after New in which the sources list the pods whose volumes were found.
const adoptionGrace = 10 * time.Minute

// adoptionBackOff returns the delays between attempts to adopt the volumes of a pod, such as while its claims cannot be read.
func adoptionBackOff() backoff.Policy { return backoff.Policy{First: time.Second, Max: time.Minute} }

// adoption is the state of a pod whose volumes were found on disk. Volumes.mu guards it.
type adoption struct {
	found   record.Found
	running bool          // an attempt is running
	due     time.Time     // of the next attempt
	delay   time.Duration // before the attempt after that
}

// findVolumes adds the volumes of pods without a record. Only New calls it.
func (v *Volumes) findVolumes() error {
	if !v.opts.AdoptUnrecorded {
		return nil
	}
	all, err := record.Find(v.opts.Root, func(plugin string) bool {
		return slices.Contains([]string{EmptyDir, ConfigMap, Secret, DownwardAPI, Projected}, plugin) && v.opts.Plugins[plugin] != nil
	})
	if err != nil {
		return err
	}
	for _, found := range all {
		p := v.newPod(found.UID, found.Name)
		p.recorded, p.adoption = found.Pod, &adoption{found: found}
		for _, known := range found.Volumes {
			v.addVolume(p, known).recover()
		}
		v.pods[found.UID] = p
	}
	return nil
}

// recover marks a volume and its device as possibly set up by a previous agent process or by another program.
func (e *entry) recover() {
	e.plan.Phase, e.plan.Recovered = plan.Uncertain, true
	if e.device != nil && e.device.plan.Phase == plan.Absent {
		e.device.plan.Phase, e.device.plan.Recovered = plan.Uncertain, true
	}
}

// isFound reports whether the directory of a volume was found on disk.
func (a *adoption) isFound(dir string) bool { return a != nil && slices.Contains(a.found.Others, dir) }

// startAdoptions starts a goroutine in wg for each listed pod whose volumes are to be adopted now. It returns when the next one is due, or zero. The
// caller holds v.mu.
func (v *Volumes) startAdoptions(ctx context.Context, wg *sync.WaitGroup, now time.Time) (wake time.Time) {
	for _, p := range v.pods {
		a := p.adoption
		switch {
		case a == nil || p.spec == nil || a.running:
		case a.due.After(now):
			if wake.IsZero() || a.due.Before(wake) {
				wake = a.due
			}
		default:
			a.running = true
			wg.Go(func() { v.adoptVolumes(ctx, p) })
		}
	}
	return wake
}

// adoptVolumes records the volumes of a pod, so that Run updates them and Release tears them down.
func (v *Volumes) adoptVolumes(ctx context.Context, state *podState) {
	v.mu.Lock()
	a, spec := state.adoption, state.spec
	v.mu.Unlock()
	_, err := v.recordDesired(ctx, spec)
	v.mu.Lock()
	a.running = false
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

// completeAdoption adopts the volumes of a pod that is released. It returns an error if the pod has volumes that only its spec describes, and no
// source has listed the pod.
func (v *Volumes) completeAdoption(ctx context.Context, uid string) error {
	v.mu.Lock()
	p := v.pods[uid]
	if p == nil || p.adoption == nil {
		v.mu.Unlock()
		return nil
	}
	others, spec := p.adoption.found.Others, p.spec
	if len(others) == 0 {
		p.adoption = nil
	}
	v.mu.Unlock()
	switch {
	case len(others) == 0:
		return nil
	case spec == nil:
		return fmt.Errorf("volumes %s were set up by another program, and the pod is not known: unmount them, and remove their directories",
			strings.Join(others[:min(len(others), 10)], ", "))
	}
	_, err := v.recordDesired(ctx, spec)
	return err
}

// mayMissDevices reports whether attached volumes that were found are not adopted yet.
func (v *Volumes) mayMissDevices() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pods {
		if a := p.adoption; a != nil && len(a.found.Others) > 0 && (p.spec != nil || time.Since(v.created) < adoptionGrace) {
			return true
		}
	}
	return false
}

// isAdopted reports whether the volumes of the pod were found on disk, and are not recorded.
func (v *Volumes) isAdopted(state *podState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return state.adoption != nil
}
