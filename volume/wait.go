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

// awaitPhase blocks until all volumes of a pod are in a phase. If ctx ends or Options.WaitTimeout passes before, the error names
// the remaining volumes.
func (v *Volumes) awaitPhase(ctx context.Context, p *podState, want plan.Phase) error {
	deadline := time.NewTimer(v.opts.WaitTimeout)
	defer deadline.Stop()
	for {
		left, changed := v.pendingVolumes(p, want)
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
		if left, _ = v.pendingVolumes(p, want); len(left) == 0 {
			return nil
		}
		return fmt.Errorf("%w: %w", end, joinErrors(left))
	}
}

// pendingVolumes returns an error for each volume of a pod that is not in phase want, and a channel that is closed at the next
// change.
func (v *Volumes) pendingVolumes(p *podState, want plan.Phase) (left []error, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	left = p.pendingErrors(want, time.Now())
	if len(left) > 0 && v.guard.Err() != nil {
		left = append([]error{runonce.NotRun("volume.Volumes")}, left...)
	}
	return left, p.changed
}

// WaitError returns the joined errors of the volumes that a pod waits for; nil: it waits for no volume. It does not block.
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

// pendingErrors returns an error for each volume that is not in phase want. Volumes.mu is held.
func (p *podState) pendingErrors(want plan.Phase, now time.Time) (errs []error) {
	for _, e := range p.volumes {
		if err := e.pendingError(p, want, now); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// pendingError returns the reason why a volume is not in phase want, or nil if it is. Volumes.mu is held.
func (e *entry) pendingError(p *podState, want plan.Phase, now time.Time) error {
	d := e.device
	switch {
	case want == plan.Ready && e.plan.Desired != plan.Mounted:
		return nil
	case want == plan.Absent && e.plan.Phase == plan.Absent && d != nil && d.isLastUser(p):
		return withName(plan.Unstage, e.plan.Name, d.pendingError(now))
	case e.plan.Phase == want:
		return nil
	case e.plan.Step != plan.None:
		return withName(e.plan.Step, e.plan.Name, stepError(&e.plan.Progress, e.err, now))
	case want == plan.Ready && d != nil && d.plan.Phase != plan.Ready && (e.err == nil || d.plan.Step != plan.None || d.err != nil):
		return withName(plan.Stage, e.plan.Name, d.pendingError(now))
	}
	step, err := plan.SetUp, e.err
	if want == plan.Absent {
		step = plan.TearDown
	}
	if err == nil {
		err = errors.New("it has not begun")
	}
	return withName(step, e.plan.Name, err)
}

// pendingError returns the reason why volumes wait for a device. Volumes.mu is held.
func (d *device) pendingError(now time.Time) error {
	switch {
	case d.plan.Step != plan.None:
		return stepError(&d.plan.Progress, d.err, now)
	case d.err != nil:
		return d.err
	default:
		return errors.New("it has not begun")
	}
}

// stepError returns err, the last error of the running step, or an error with the time that the step has been running.
func stepError(p *plan.Progress, err error, now time.Time) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s is under way for %v", p.Step, now.Sub(p.Since).Round(time.Second))
}

// nameError wraps err in an [Error] with step and volume name, unless it is one.
func withName(s plan.Step, name string, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return &Error{Step: publicStep(s), Volume: name, Err: err}
}
