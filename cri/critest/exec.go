// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// ExecFunc runs a command inside a container.
type ExecFunc func(ctx context.Context, cmd []string) (cri.ExecResult, error)

// ExecSync asks the container's script. A command whose container exits is killed.
func (r *Runtime) ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (res cri.ExecResult, err error) {
	call := r.begin(Call{Op: "ExecSync", ID: containerID})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.ExecResult{}, err
	}
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, seconds(timeout))
		defer cancel()
	}
	inside, cancel := context.WithCancel(limited)
	defer cancel()
	c, err := r.enter(containerID, call, cancel)
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

// enter registers a command with a running container.
func (r *Runtime) enter(id string, call *Call, cancel context.CancelFunc) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.running(id)
	if err != nil {
		return nil, err
	}
	c.execs[call] = cancel
	return c, nil
}

// ReopenContainerLog succeeds for a running container; there is no log.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) (err error) {
	call := r.begin(Call{Op: "ReopenContainerLog", ID: id})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.running(id)
	return err
}

// running returns a container that runs. r.mu is held.
func (r *Runtime) running(id string) (*container, error) {
	c := r.container(id)
	if c == nil {
		return nil, cri.ErrNotFound
	}
	if c.State != cri.ContainerRunning {
		return nil, errors.New("container is " + c.State.String())
	}
	return c, nil
}
