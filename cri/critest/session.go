// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// SessionFunc plays a command with the streams of an exec session. It must return when ctx ends: at the end of the session or of
// the container.
type SessionFunc func(ctx context.Context, cmd []string, s cri.Session) (exitCode int, err error)

// AttachFunc plays the process of a container for one attached client. It must return when ctx ends: at the end of the session or
// of the container.
type AttachFunc func(ctx context.Context, s cri.Session) error

// PortFunc plays a port of a sandbox for one connection. conn is closed when it returns and when ctx ends.
type PortFunc func(ctx context.Context, s cri.Sandbox, port int32, conn io.ReadWriteCloser) error

var (
	_ cri.SessionRunner = (*Runtime)(nil)
	_ cri.Checkpointer  = (*Runtime)(nil)
	_ cri.PodCIDRSetter = (*Runtime)(nil)
)

// RunExec simulates a command with the function Script.Session of the container. If that is nil, it uses Script.Exec, and
// copies the output to the session. RunExec returns the exit code.
func (r *Runtime) RunExec(ctx context.Context, containerID string, cmd []string, session cri.Session) (code int, err error) {
	ended, err := r.runSession(ctx, "Exec", containerID, func(ctx context.Context, script Script) error {
		if script.Session != nil {
			code, err = script.Session(ctx, cmd, session)
			return err
		}
		if script.Exec == nil {
			return nil
		}
		res, err := script.Exec(ctx, cmd)
		if err != nil {
			return err
		}
		code = res.ExitCode
		return errors.Join(writeOutput(session.Stdout, res.Stdout), writeOutput(session.Stderr, res.Stderr))
	})
	if ended {
		code = codeKilled
	}
	return code, err
}

// writeOutput writes data to w, unless w is nil.
func writeOutput(w io.Writer, data []byte) error {
	if w == nil || len(data) == 0 {
		return nil
	}
	_, err := w.Write(data)
	return err
}

// RunAttach simulates an attached client with the function Script.Attach of the container. If that is nil, it waits until
// the container exits.
func (r *Runtime) RunAttach(ctx context.Context, containerID string, session cri.Session) error {
	_, err := r.runSession(ctx, "Attach", containerID, func(ctx context.Context, script Script) error {
		if script.Attach == nil {
			return Hang(ctx)
		}
		return script.Attach(ctx, session)
	})
	return err
}

// runSession calls play with the script of a running container. The container's exit cancels the context of play.
func (r *Runtime) runSession(ctx context.Context, op, id string, play func(context.Context, Script) error) (exited bool, err error) {
	call := r.recordCall(Call{Op: op, ID: id})
	defer r.recordResult(call, &err)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	inside, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := r.registerExec(id, call, cancel)
	if err != nil {
		return false, err
	}
	err = play(inside, c.script)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(c.execs, call)
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case inside.Err() != nil:
		return true, nil
	}
	return false, err
}

// RunPortForward calls Options.Port for one connection to a ready sandbox. If Options.Port is nil, the connection is refused. It
// closes conn.
func (r *Runtime) RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) (err error) {
	defer conn.Close()
	call := r.recordCall(Call{Op: "PortForward", ID: sandboxID})
	defer r.recordResult(call, &err)
	s, err := r.readySandbox(sandboxID)
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case r.opts.Port == nil:
		return fmt.Errorf("port %d: connection refused", port)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := r.opts.Port(ctx, s, port, conn); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// readySandbox returns the sandbox with this ID, or an error if it is not ready.
func (r *Runtime) readySandbox(id string) (cri.Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb := r.sandboxByID(id)
	switch {
	case sb == nil:
		return cri.Sandbox{}, cri.ErrNotFound
	case sb.State != cri.SandboxReady:
		return cri.Sandbox{}, errNotReady
	}
	return sb.Sandbox, nil
}

// Checkpoint succeeds if the container is running. It writes no archive.
func (r *Runtime) Checkpoint(ctx context.Context, containerID, _ string, _ time.Duration) (err error) {
	call := r.recordCall(Call{Op: "CheckpointContainer", ID: containerID})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = r.runningContainer(containerID)
	return err
}

// SetPodCIDRs sets the range from which new sandboxes get their addresses. It uses only the first of the CIDRs.
func (r *Runtime) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) (err error) {
	call := r.recordCall(Call{Op: "UpdateRuntimeConfig"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, cidr := range cidrs {
		if !cidr.IsValid() {
			return fmt.Errorf("pod CIDR %v is invalid", cidr)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(cidrs) > 0 {
		r.opts.PodCIDR, r.lastAddr = cidrs[0], cidrs[0].Masked().Addr()
	}
	return nil
}
