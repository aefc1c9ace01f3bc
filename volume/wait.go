// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// awaitPhase blocks until all volumes of the pod have reached this phase. The error, at the end of ctx or Options.WaitTimeout,
// names the other volumes.
func (v *Volumes) awaitPhase(ctx context.Context, state *podState, phase plan.Phase) error {
	deadline := time.NewTimer(v.opts.WaitTimeout)
	defer deadline.Stop()
	for {
		left, changed := v.pendingVolumes(state, phase)
		if len(left) == 0 {
			return nil
		}
		var end error
		select {
		case <-changed:
			continue
		case <-ctx.Done():
			end = ctx.Err()
		case <-deadline.C:
			end = fmt.Errorf("timed out after %v", v.opts.WaitTimeout)
		}
		if left, _ = v.pendingVolumes(state, phase); len(left) == 0 {
			return nil
		}
		return fmt.Errorf("%w: %w", end, joinErrors(left))
	}
}

// pendingVolumes returns an error for each volume of the pod that has not reached this phase. changed is closed when to call it
// again.
func (v *Volumes) pendingVolumes(state *podState, phase plan.Phase) (left []error, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	left = state.pendingErrors(phase, time.Now())
	if len(left) > 0 && v.guard.Err() != nil {
		left = append([]error{runonce.NotRun("volume.Volumes")}, left...)
	}
	return left, state.changed
}

// WaitError returns the reasons why volumes of the pod with this UID are not set up yet, joined into one error. It returns
// nil if the pod waits for no volume. It does not block.
func (v *Volumes) WaitError(uid string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[uid]
	if p == nil {
		return nil
	}
	errs := p.pendingErrors(plan.Ready, time.Now())
	if len(errs) == 0 {
		return nil
	}
	return joinErrors(errs)
}

// pendingErrors returns an error for each volume of the pod that has not reached this phase. The caller holds Volumes.mu.
func (p *podState) pendingErrors(phase plan.Phase, now time.Time) (errs []error) {
	for _, e := range p.volumes {
		if err := e.pendingError(p, phase, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// pendingError returns why the volume of a pod has not reached this phase, or nil. The caller holds Volumes.mu.
func (e *entry) pendingError(state *podState, phase plan.Phase, now time.Time) error {
	d := e.device
	switch {
	case phase == plan.Ready && e.plan.Desired != plan.Mounted:
		return nil
	case phase == plan.Absent && e.plan.Phase == plan.Absent && d != nil && d.isLastUser(state):
		return nameError(plan.Unstage, e.plan.Name, d.pendingError(now))
	case e.plan.Phase == phase:
		return nil
	case e.plan.Step != plan.None:
		return nameError(e.plan.Step, e.plan.Name, stepError(&e.plan.Progress, e.err, now))
	case phase == plan.Ready && d != nil && d.plan.Phase != plan.Ready && (e.err == nil || d.plan.Step != plan.None || d.err != nil):
		return nameError(plan.Stage, e.plan.Name, d.pendingError(now))
	}
	step, err := plan.SetUp, e.err
	if phase == plan.Absent {
		step = plan.TearDown
	}
	if err == nil {
		err = errors.New("not started")
	}
	return nameError(step, e.plan.Name, err)
}

// pendingError returns why volumes wait for the device. The caller holds Volumes.mu.
func (d *device) pendingError(now time.Time) error {
	switch {
	case d.plan.Step != plan.None:
		return stepError(&d.plan.Progress, d.err, now)
	case d.err != nil:
		return d.err
	default:
		return errors.New("not started")
	}
}

// stepError returns the last error of a volume or device, or an error with the running step and its duration.
func stepError(progress *plan.Progress, err error, now time.Time) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is under way for %v", progress.Step, now.Sub(progress.Since).Round(time.Second))
}

// nameError wraps err in an [Error] with the step and the volume name. If err already contains an [Error], it returns err
// unchanged.
func nameError(step plan.Step, name string, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return &Error{Step: publicStep(step), Volume: name, Err: err}
}
