// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/internal/backoff"
)

// examineContainer determines the state of a container that a previous agent process created. The caller holds mu, except
// during Open.
func (r *Runtime) examineContainer(ctr *container, deadline time.Time) error {
	err := ctr.adoptState(deadline)
	if err == nil {
		return nil
	}
	ctr.State = cri.ContainerUnknown
	// a later call tries again
	ctr.examineDelay = backoff.Policy{First: firstRetry, Max: maxExamineRetry}.Next(ctr.examineDelay)
	ctr.examineAt = time.Now().Add(ctr.examineDelay)
	r.containerLogger(ctr).Warn("container is in an unknown state", "error", err, "retry", ctr.examineDelay)
	return err
}

// adoptState sets the state of a container from its running shim or, without a shim, from its exit record.
func (c *container) adoptState(deadline time.Time) error {
	handle, err := shim.FindShim(c.dir, deadline)
	if err != nil {
		return err
	}
	if handle != nil {
		run, err := shim.ReadRun(c.dir)
		if err != nil {
			handle.Close()
			return fmt.Errorf("read start record: %w", err)
		}
		c.shim, c.State, c.StartedAt = handle, cri.ContainerRunning, run.At
		return nil
	}
	exit, err := shim.ReadOutcome(c.dir, envMark(c.ID))
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.State = cri.ContainerCreated // never started
	case shim.IsReadFailure(err):
		return fmt.Errorf("read how it ended: %w", err)
	default:
		c.recordExit(exit, err)
	}
	return nil
}

// refreshState records the exit of a container whose shim has exited, and examines an unknown state again. The caller holds
// mu.
func (r *Runtime) refreshState(ctr *container) error {
	if ctr.State == cri.ContainerUnknown && !ctr.removed && !time.Now().Before(ctr.examineAt) {
		err := r.examineContainer(ctr, time.Now())
		if err == nil {
			r.emitState(ctr)
		}
		return err
	}
	if ctr.shim == nil || !ctr.shim.Exited() {
		return nil
	}
	exit, err := shim.ReadOutcome(ctr.dir, envMark(ctr.ID))
	if errors.Is(err, os.ErrNotExist) {
		exit, err = shim.RecordStartFailure(ctr.dir, errors.New("its shim ended before it said that it had started a process"))
	}
	if shim.IsReadFailure(err) {
		r.containerLogger(ctr).Error("cannot read how a container ended", "error", err)
		return err
	}
	if err != nil {
		r.containerLogger(ctr).Error("container ended without a record", "error", err)
	}
	ctr.shim.Close()
	ctr.shim = nil
	// All code that detects an exit calls refreshState, so that EventStopped is emitted only once.
	ctr.recordExit(exit, err)
	r.emitEvent(cri.EventStopped, ctr.ID, r.podIdentity(ctr), nil)
	return nil
}

// emitState emits the event for the current state of a container. The state was unknown before. The caller holds mu.
func (r *Runtime) emitState(ctr *container) {
	ctr.examineDelay = 0
	r.containerLogger(ctr).Info("container is in a known state again", "state", ctr.State)
	switch ctr.State {
	case cri.ContainerRunning:
		r.emitEvent(cri.EventStarted, ctr.ID, r.podIdentity(ctr), ctr)
	case cri.ContainerExited:
		r.emitEvent(cri.EventStopped, ctr.ID, r.podIdentity(ctr), nil)
	default:
		r.emitEvent(cri.EventCreated, ctr.ID, r.podIdentity(ctr), nil)
	}
}
