// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/capture"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

const (
	// outputLimit is what is kept of each stream of a command, as in containerd.
	outputLimit = 16 << 20
	// outputTime is for output that something the command left behind still holds open. What the command itself has
	// written is there at once; and this must fit into the second that a probe has.
	outputTime = 200 * time.Millisecond
)

// ExecSync runs a command beside the process of a container, with its environment, working directory and user.
// What the command leaves running ends with the container. Of each stream it keeps the first 16 MiB, or the bytes of [cri.WithMaxOutput].
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	result, err := r.execSync(ctx, id, cmd, timeout)
	return result, fail("ExecSync", id, err)
}

func (r *Runtime) execSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	handle, err := r.running(id)
	if err != nil {
		return cri.ExecResult{}, err
	}
	if len(cmd) == 0 {
		return cri.ExecResult{}, errors.New("no command")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(timeout))
		defer cancel()
	}
	limit := outputLimit
	if most, ok := cri.MaxOutput(ctx); ok {
		limit = min(limit, most)
	}
	var readers sync.WaitGroup
	stdout, err := capture.Start(&readers, limit, outputTime)
	if err != nil {
		return cri.ExecResult{}, err
	}
	stderr, err := capture.Start(&readers, limit, outputTime)
	if err != nil {
		stdout.Finish()
		readers.Wait()
		return cri.ExecResult{}, err
	}
	exitCode, err := handle.Exec(ctx, cmd, stdout.Writer(), stderr.Writer())
	stdout.Finish()
	stderr.Finish()
	readers.Wait()
	if err != nil {
		return cri.ExecResult{}, err
	}
	return cri.ExecResult{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exitCode}, nil
}

// ReopenContainerLog returns when the container writes to a new log file.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	handle, err := r.running(id)
	if err == nil {
		err = handle.ReopenLog(ctx)
	}
	return fail("ReopenContainerLog", id, err)
}

// running returns the shim of a container that runs.
func (r *Runtime) running(id string) (*shim.Handle, error) {
	c, err := r.find(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.settle(c); err != nil {
		return nil, err
	}
	if c.shim == nil {
		return nil, errors.New("container is " + c.State.String() + ", not running")
	}
	return c.shim, nil
}
