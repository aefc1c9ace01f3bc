// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/required"
)

// Execer runs commands in containers.
//
// Exec returns the output of the command, standard output before standard error, and its exit code; a nonzero code is no error.
// When ctx ends, Exec stops the command and returns soon, with an error. An error may also mean that the command could not run.
type Execer interface {
	Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error)
}

// ExecFunc is a function that implements [Execer].
type ExecFunc func(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error)

var _ Execer = ExecFunc(nil)

// Exec calls f.
func (f ExecFunc) Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error) {
	return f(ctx, containerID, command)
}

// ExecConfig is the command that an [Exec] prober runs. Both fields are required.
type ExecConfig struct {
	ContainerID string
	Command     []string // program and arguments, without a shell
}

// Exec is a [Prober] that runs a command in a container: exit code zero is a success.
type Exec struct {
	execer Execer
	config ExecConfig
}

var _ Prober = (*Exec)(nil)

// NewExec returns a prober that runs a command in a container through execer. It returns an error if execer is nil, or if a
// field of config is invalid; the error names the field and its value.
func NewExec(execer Execer, config ExecConfig) (*Exec, error) {
	if err := required.Args("probe.NewExec", required.Arg{Name: "execer", Value: execer, Hint: "that of podprobe.CRI"}); err != nil {
		return nil, err
	}
	switch {
	case config.ContainerID == "":
		return nil, errors.New("field ContainerID: is empty")
	case len(config.Command) == 0 || config.Command[0] == "":
		return nil, fmt.Errorf("field Command: %q names no program", config.Command)
	}
	for i, arg := range config.Command {
		if strings.Contains(arg, "\x00") {
			return nil, fmt.Errorf("field Command[%d]: %q contains a zero byte", i, arg)
		}
	}
	config.Command = slices.Clone(config.Command)
	return &Exec{execer: execer, config: config}, nil
}

// Probe runs the command. The result is Success if the exit code is zero. It is Failure for other exit codes, or if the command
// has not exited at the deadline of ctx. If the command could not be run, Probe returns an error: the health is unknown.
func (e *Exec) Probe(ctx context.Context) (Result, error) {
	began := time.Now()
	output, code, err := e.execer.Exec(ctx, e.config.ContainerID, slices.Clone(e.config.Command))
	output = output[:min(len(output), MaxOutput)]
	switch {
	case err == nil && code == 0:
		return Result{Outcome: Success, Output: string(output)}, nil
	case err == nil:
		return Result{Outcome: Failure, Output: string(output)}, nil
	case e.isTimeout(ctx, err):
		return NewResult(Failure, e.timeoutMessage(ctx, began)), nil
	default:
		return Result{}, fmt.Errorf("run %q in container %s: %w", e.config.Command, e.config.ContainerID, err)
	}
}

// isTimeout reports whether err was caused by a timeout.
func (*Exec) isTimeout(ctx context.Context, err error) bool {
	// A runtime may return any error at the deadline.
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// timeoutMessage returns the kubelet's message for a command that has timed out. The argument began is the start time of the
// command.
func (e *Exec) timeoutMessage(ctx context.Context, began time.Time) string {
	limit := time.Since(began)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(began)
	}
	return fmt.Sprintf("command timed out: %q timed out after %v", strings.Join(e.config.Command, " "), limit.Round(10*time.Millisecond))
}
