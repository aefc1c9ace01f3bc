// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// killTime bounds the wait for a container to be gone after SIGKILL, beyond which its shim is killed too.
const killTime = 15 * time.Second

// What fails is tried again after firstPause, and then after twice as long each time, up to one of the others.
const (
	firstPause   = 50 * time.Millisecond
	signalPause  = 1 * time.Second
	examinePause = 30 * time.Second
)

// StopContainer sends the stop signal to the process group of a container, and after grace SIGKILL to its process
// and all that descends from it.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.find(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.stop(ctx, c, grace)
	}
	return fail("StopContainer", id, err)
}

func (r *Runtime) stop(ctx context.Context, c *container, grace time.Duration) error {
	// A start under way decides first whether there is anything to stop.
	if err := c.claim(ctx); err != nil {
		return err
	}
	c.unclaim()
	handle, err := r.stoppable(c)
	if handle == nil || err != nil {
		return err
	}
	if err := r.end(ctx, c, handle, seconds(grace)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settle(c)
}

// stoppable returns the shim of a container, nil where nothing runs.
func (r *Runtime) stoppable(c *container) (*shim.Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.State != cri.ContainerUnknown || c.gone {
		return c.shim, nil
	}
	if r.examine(c, time.Now()) == nil {
		r.announce(c)
		return c.shim, nil
	}
	// Its shim lives. What it runs is to be stopped even if it never says so.
	handle, err := shim.Search(c.dir)
	if err != nil {
		return nil, err
	}
	c.shim, c.State = handle, cri.ContainerRunning
	r.announce(c)
	return handle, nil
}

// end signals and kills until the shim has ended.
func (r *Runtime) end(ctx context.Context, c *container, handle *shim.Handle, grace time.Duration) error {
	if grace > 0 {
		sig, err := translate.Signal(c.StopSignal)
		if err != nil {
			return err
		}
		if r.deliver(ctx, c, handle, int(sig), grace) {
			if ended, err := waitFor(ctx, handle, grace); ended || err != nil {
				return err
			}
		}
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"kill container", func() error { return handle.Kill(ctx) }},
		// Without its shim the container loses its exit code, but not its end.
		{"kill shim", handle.KillShim},
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := step.do()
		if err != nil && ctx.Err() == nil && !handle.Exited() {
			r.logAbout(c).Warn("cannot "+step.what, "error", err)
			continue
		}
		if ended, err := waitFor(ctx, handle, killTime); ended || err != nil {
			return err
		}
	}
	return errors.New("the container survives SIGKILL")
}

// deliver sends the stop signal and reports whether it arrived. What cannot be sent, as without free descriptors, is
// sent again, for as long as the container may take to end: it is not killed for what is no fault of its own.
func (r *Runtime) deliver(ctx context.Context, c *container, handle *shim.Handle, sig int, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	retry := backoff.Policy{First: firstPause, Max: signalPause}
	for pause := retry.First; ; pause = retry.Next(pause) {
		err := handle.Signal(ctx, sig)
		if err == nil || handle.Exited() {
			return true
		}
		r.logAbout(c).Warn("cannot signal container", "error", err)
		if sleep.For(ctx, pause) != nil {
			return false
		}
	}
}

// waitFor waits for the end of a shim and reports whether it came in time.
func waitFor(ctx context.Context, handle *shim.Handle, limit time.Duration) (ended bool, err error) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = handle.Wait(timed)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// seconds rounds up, as the CRI has it. What is longer than whole seconds can say is the longest there is, what is
// negative zero.
func seconds(d time.Duration) time.Duration {
	whole := max(d, 0).Truncate(time.Second)
	switch {
	case d <= whole:
		return whole
	case whole > math.MaxInt64-time.Second:
		return math.MaxInt64
	}
	return whole + time.Second
}
