// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// ExecFunc plays a command inside a container and returns its output and exit code.
type ExecFunc func(ctx context.Context, cmd []string) (cri.ExecResult, error)

// ExecSync returns the result of the function Script.Exec of the container. It cancels the context of that function when the
// container exits.
func (r *Runtime) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (res cri.ExecResult, err error) {
	call := r.recordCall(Call{Op: "ExecSync", ID: containerID})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.ExecResult{}, err
	}
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, roundUpToSeconds(timeout))
		defer cancel()
	}
	inside, cancel := context.WithCancel(limited)
	defer cancel()
	c, err := r.registerExec(containerID, call, cancel)
	if err != nil {
		return cri.ExecResult{}, err
	}
	if c.script.Exec != nil {
		res, err = c.script.Exec(inside, cmd)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(c.execs, call)
	switch {
	case limited.Err() != nil:
		return cri.ExecResult{}, limited.Err()
	case c.State != cri.ContainerRunning:
		return cri.ExecResult{ExitCode: codeKilled}, nil
	}
	return res, err
}

// registerExec registers a command that runs in a container, so that the container's exit cancels it.
func (r *Runtime) registerExec(id string, call *Call, cancel context.CancelFunc) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.runningContainer(id)
	if err != nil {
		return nil, err
	}
	c.execs[call] = cancel
	return c, nil
}

// ReopenContainerLog succeeds if the container is running. It does nothing, because the runtime writes no log files.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) (err error) {
	call := r.recordCall(Call{Op: "ReopenContainerLog", ID: id})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.runningContainer(id)
	return err
}

// runningContainer returns the container with this ID, or an error if it is not running. r.mu is held.
func (r *Runtime) runningContainer(id string) (*container, error) {
	c := r.containerByID(id)
	if c == nil {
		return nil, cri.ErrNotFound
	}
	if c.State != cri.ContainerRunning {
		return nil, errors.New("container is " + c.State.String())
	}
	return c, nil
}
