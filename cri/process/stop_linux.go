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

// killTimeout limits the wait for the exit of a container after SIGKILL. After that its shim is killed too.
const killTimeout = 15 * time.Second

// Retries start after firstRetry and double up to maxSignalRetry or maxExamineRetry.
const (
	firstRetry      = 50 * time.Millisecond
	maxSignalRetry  = 1 * time.Second
	maxExamineRetry = 30 * time.Second
)

// StopContainer sends the stop signal to the process group of a container. After the grace period it kills the process and
// all its descendants. It returns when they have exited. A missing container is no error.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	c, err := r.findContainer(id)
	if errors.Is(err, cri.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = r.stopContainer(ctx, c, grace)
	}
	return wrapError("StopContainer", id, err)
}

func (r *Runtime) stopContainer(ctx context.Context, ctr *container, grace time.Duration) error {
	// A start in progress decides first whether there is a process to stop.
	if err := ctr.lockOp(ctx); err != nil {
		return err
	}
	ctr.unlockOp()
	handle, err := r.shimToStop(ctr)
	if handle == nil || err != nil {
		return err
	}
	if err := r.terminateShim(ctx, ctr, handle, roundUpToSeconds(grace)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refreshState(ctr)
}

// shimToStop returns the shim of a container that must be stopped, or nil if the container has no process.
func (r *Runtime) shimToStop(ctr *container) (*shim.Handle, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctr.State != cri.ContainerUnknown || ctr.removed {
		return ctr.shim, nil
	}
	if r.examineContainer(ctr, time.Now()) == nil {
		r.emitState(ctr)
		return ctr.shim, nil
	}
	// The shim is alive. Its process must be stopped even if the shim never reports it.
	handle, err := shim.SearchShim(ctr.dir)
	if err != nil {
		return nil, err
	}
	ctr.shim, ctr.State = handle, cri.ContainerRunning
	r.emitState(ctr)
	return handle, nil
}

// terminateShim stops a running container: it sends the stop signal, kills the container after the grace period, and at last
// kills the shim.
func (r *Runtime) terminateShim(ctx context.Context, ctr *container, handle *shim.Handle, grace time.Duration) error {
	if grace > 0 {
		sig, err := translate.Signal(ctr.StopSignal)
		if err != nil {
			return err
		}
		if r.sendStopSignal(ctx, ctr, handle, int(sig), grace) {
			if ended, err := awaitExit(ctx, handle, grace); ended || err != nil {
				return err
			}
		}
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"kill container", func() error { return handle.Kill(ctx) }},
		// Killing the shim kills the container; its exit code is lost.
		{"kill shim", handle.KillShim},
	}
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := step.do()
		if err != nil && ctx.Err() == nil && !handle.Exited() {
			r.containerLogger(ctr).Warn("cannot "+step.what, "error", err)
			continue
		}
		if ended, err := awaitExit(ctx, handle, killTimeout); ended || err != nil {
			return err
		}
	}
	return errors.New("the container survives SIGKILL")
}

// sendStopSignal sends this signal to the container. It returns true if the shim has received the signal or has exited.
func (r *Runtime) sendStopSignal(ctx context.Context, ctr *container, handle *shim.Handle, sig int, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// for example, a temporary lack of file descriptors must not lead to a kill without a stop signal
	retry := backoff.Policy{First: firstRetry, Max: maxSignalRetry}
	for pause := retry.First; ; pause = retry.Next(pause) {
		err := handle.Signal(ctx, sig)
		if err == nil || handle.Exited() {
			return true
		}
		r.containerLogger(ctr).Warn("cannot signal container", "error", err)
		if sleep.For(ctx, pause) != nil {
			return false
		}
	}
}

// awaitExit waits until a shim has exited, at most for the time limit. It reports whether the shim has exited.
func awaitExit(ctx context.Context, handle *shim.Handle, limit time.Duration) (ended bool, err error) {
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = handle.Wait(timed)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// roundUpToSeconds rounds a duration up to whole seconds, the unit of CRI durations, between zero and the maximum.
func roundUpToSeconds(d time.Duration) time.Duration {
	whole := max(d, 0).Truncate(time.Second)
	switch {
	case d <= whole:
		return whole
	case whole > math.MaxInt64-time.Second:
		return math.MaxInt64
	}
	return whole + time.Second
}
