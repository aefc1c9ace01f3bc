// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"io"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/portforward"
	"github.com/seed81659283/nodeagent/cri/process/internal/session"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// RunExec runs a command with the environment, directory and user of the container and the streams of session, and returns
// its exit code. When ctx ends, it kills the command and its child processes. Background processes run until the container
// exits.
func (r *Runtime) RunExec(ctx context.Context, id string, cmd []string, session cri.Session) (int, error) {
	code, err := r.runExec(ctx, id, cmd, session)
	return code, wrapError("Exec", id, err)
}

func (r *Runtime) runExec(ctx context.Context, id string, cmd []string, streams cri.Session) (int, error) {
	handle, err := r.runningShim(id)
	if err != nil {
		return 0, err
	}
	if len(cmd) == 0 {
		return 0, errors.New("no command")
	}
	return session.ExecSession(ctx, streams, func(ctx context.Context, tty bool, fds []int) (int, error) {
		return handle.Run(ctx, cmd, tty, fds)
	})
}

// RunAttach connects a client to the container's process. It disconnects a client that leaves 1 MiB of output unread.
func (r *Runtime) RunAttach(ctx context.Context, id string, streams cri.Session) error {
	handle, err := r.runningShim(id)
	if err == nil {
		err = session.AttachSession(ctx, streams, func(ctx context.Context, input, sizes bool, fds [2]int) (session.Container, error) {
			a, err := handle.Attach(ctx, shim.AttachOptions{Input: input, Terminal: sizes}, fds)
			if err != nil {
				return nil, err
			}
			return a, nil
		})
	}
	return wrapError("Attach", id, err)
}

// RunPortForward forwards a connection to a port on the loopback interface of the sandbox, which may be the host's. If the
// program at the port reads nothing for 5 s, its connection is reset.
func (r *Runtime) RunPortForward(ctx context.Context, id string, port int32, conn io.ReadWriteCloser) error {
	netns, err := r.sandboxNetns(id)
	if err == nil {
		err = portforward.Forward(ctx, netns, port, conn)
	} else {
		err = errors.Join(err, conn.Close())
	}
	return wrapError("PortForward", id, err)
}

// sandboxNetns returns the path of the network namespace of a ready sandbox. It is empty for a sandbox on the host network.
func (r *Runtime) sandboxNetns(id string) (string, error) {
	s, err := r.findSandbox(id)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.stopping || s.State != cri.SandboxReady {
		return "", errors.New("sandbox is not ready")
	}
	if s.Network == nil {
		return "", nil
	}
	return s.Network.Netns, nil
}

var (
	_ cri.SessionRunner = (*Runtime)(nil)
	_ session.Container = (*shim.Attachment)(nil)
)
