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
	// outputLimit is the maximum size of each output stream of a command, as in containerd.
	outputLimit = 16 << 20
	// outputWait limits the wait for output while a background process of the command holds the pipe open. Output of the command
	// itself is available at once. The wait must be shorter than a probe timeout of one second.
	outputWait = 200 * time.Millisecond
)

// ExecSync runs a command with the environment, directory and user of the container, and returns its output and exit code.
// Each output is truncated to 16 MiB, or [cri.WithMaxOutput]. Background processes run until the container exits.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	result, err := r.execSync(ctx, id, cmd, timeout)
	return result, wrapError("ExecSync", id, err)
}

func (r *Runtime) execSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	handle, err := r.runningShim(id)
	if err != nil {
		return cri.ExecResult{}, err
	}
	if len(cmd) == 0 {
		return cri.ExecResult{}, errors.New("no command")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, roundUpToSeconds(timeout))
		defer cancel()
	}
	limit := outputLimit
	if most, ok := cri.MaxOutput(ctx); ok {
		limit = min(limit, most)
	}
	var readers sync.WaitGroup
	stdout, err := capture.Start(&readers, limit, outputWait)
	if err != nil {
		return cri.ExecResult{}, err
	}
	stderr, err := capture.Start(&readers, limit, outputWait)
	if err != nil {
		stdout.CloseWriter()
		readers.Wait()
		return cri.ExecResult{}, err
	}
	exitCode, err := handle.Exec(ctx, cmd, stdout.Writer(), stderr.Writer())
	stdout.CloseWriter()
	stderr.CloseWriter()
	readers.Wait()
	if err != nil {
		return cri.ExecResult{}, err
	}
	return cri.ExecResult{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: exitCode}, nil
}

// ReopenContainerLog makes the shim of a running container open a new log file, and returns when the container's output goes
// there.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	handle, err := r.runningShim(id)
	if err == nil {
		err = handle.ReopenLog(ctx)
	}
	return wrapError("ReopenContainerLog", id, err)
}

// runningShim returns the shim of the container with this ID. It returns an error if the container is not running.
func (r *Runtime) runningShim(id string) (*shim.Handle, error) {
	c, err := r.findContainer(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refreshState(c); err != nil {
		return nil, err
	}
	if c.shim == nil {
		return nil, errors.New("container is " + c.State.String() + ", not running")
	}
	return c.shim, nil
}
