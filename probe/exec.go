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

// Execer runs a command in a container, to its end.
//
// It returns what the command wrote, standard output before standard error, and
// its exit code. It stops the command and returns soon after ctx has ended, with
// an error; an error also says that the command could not be run at all. A code
// other than zero is no error.
type Execer interface {
	Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error)
}

// ExecFunc is a function that is an [Execer].
type ExecFunc func(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error)

var _ Execer = ExecFunc(nil)

// Exec calls f.
func (f ExecFunc) Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error) {
	return f(ctx, containerID, command)
}

// ExecConfig says what an [Exec] runs. Both fields are required.
type ExecConfig struct {
	ContainerID string
	Command     []string // the program and its arguments; no shell looks at them
}

// Exec probes by running a command in the container: exit code zero is a success.
type Exec struct {
	execer Execer
	config ExecConfig
}

var _ Prober = (*Exec)(nil)

// NewExec returns a prober that runs a command. The error names the field that is wrong and its value, or a nil execer.
func NewExec(execer Execer, c ExecConfig) (*Exec, error) {
	if err := required.Args("probe.NewExec", required.Arg{Name: "execer", Value: execer, Hint: "that of podprobe.CRI"}); err != nil {
		return nil, err
	}
	switch {
	case c.ContainerID == "":
		return nil, errors.New("field ContainerID: is empty")
	case len(c.Command) == 0 || c.Command[0] == "":
		return nil, fmt.Errorf("field Command: %q names no program", c.Command)
	}
	for i, arg := range c.Command {
		if strings.Contains(arg, "\x00") {
			return nil, fmt.Errorf("field Command[%d]: %q contains a zero byte", i, arg)
		}
	}
	c.Command = slices.Clone(c.Command)
	return &Exec{execer: execer, config: c}, nil
}

// Probe runs the command. Another exit code than zero is a failure, and so is a command that has not ended when ctx
// reaches its deadline. A command that could not be run is an error: that says nothing of the container's health.
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

// late reports whether the command ran out of time: a runtime that ends it at the deadline may call that something else.
func (*Exec) isTimeout(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// timeout is the text of the kubelet for a command that ran out of time.
func (e *Exec) timeoutMessage(ctx context.Context, began time.Time) string {
	limit := time.Since(began)
	if deadline, ok := ctx.Deadline(); ok {
		limit = deadline.Sub(began)
	}
	return fmt.Sprintf("command timed out: %q timed out after %v", strings.Join(e.config.Command, " "), limit.Round(10*time.Millisecond))
}
