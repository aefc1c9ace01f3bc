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

// examine finds out what became of a container that an earlier agent left. Where that cannot be told now, the container
// is in state unknown, and to be examined again after a pause. The caller holds mu, but for Open.
func (r *Runtime) examine(c *container, deadline time.Time) error {
	err := c.adopt(deadline)
	if err == nil {
		return nil
	}
	c.State = cri.ContainerUnknown
	c.pause = backoff.Policy{First: firstPause, Max: examinePause}.Next(c.pause)
	c.again = time.Now().Add(c.pause)
	r.logAbout(c).Warn("container is in an unknown state", "error", err, "retry", c.pause)
	return err
}

// adopt takes over a container as its files and its shim have it.
func (c *container) adopt(deadline time.Time) error {
	handle, err := shim.Find(c.dir, deadline)
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
	exit, err := shim.Outcome(c.dir, mark(c.ID))
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.State = cri.ContainerCreated // never started
	case shim.IsTrouble(err):
		return fmt.Errorf("read how it ended: %w", err)
	default:
		c.finish(exit, err)
	}
	return nil
}

// settle takes over the end of a container whose shim has ended, and looks again at one in state unknown when it is
// time. Every way to learn of an end leads here, so it is told once. After an error the container is as it was, and
// settle may be called again. The caller holds mu.
func (r *Runtime) settle(c *container) error {
	if c.State == cri.ContainerUnknown && !c.gone && !time.Now().Before(c.again) {
		err := r.examine(c, time.Now())
		if err == nil {
			r.announce(c)
		}
		return err
	}
	if c.shim == nil || !c.shim.Exited() {
		return nil
	}
	exit, err := shim.Outcome(c.dir, mark(c.ID))
	if errors.Is(err, os.ErrNotExist) {
		exit, err = shim.StartFailed(c.dir, errors.New("its shim ended before it said that it had started a process"))
	}
	if shim.IsTrouble(err) {
		r.logAbout(c).Error("cannot read how a container ended", "error", err)
		return err
	}
	if err != nil {
		r.logAbout(c).Error("container ended without a record", "error", err)
	}
	c.shim.Close()
	c.shim = nil
	c.finish(exit, err)
	r.emit(cri.EventStopped, c.ID, r.podOf(c), nil)
	return nil
}

// announce tells that the state of a container is known again. The caller holds mu.
func (r *Runtime) announce(c *container) {
	c.pause = 0
	r.logAbout(c).Info("container is in a known state again", "state", c.State)
	switch c.State {
	case cri.ContainerRunning:
		r.emit(cri.EventStarted, c.ID, r.podOf(c), c)
	case cri.ContainerExited:
		r.emit(cri.EventStopped, c.ID, r.podOf(c), nil)
	default:
		r.emit(cri.EventCreated, c.ID, r.podOf(c), nil)
	}
}
