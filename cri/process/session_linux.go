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

// RunExec runs a command beside the process of a container, as ExecSync does, on the streams of a session. When ctx ends, the
// command is killed with what it has started; what it leaves running at its own end belongs to the container.
func (r *Runtime) RunExec(ctx context.Context, id string, cmd []string, s cri.Session) (int, error) {
	code, err := r.runExec(ctx, id, cmd, s)
	return code, fail("Exec", id, err)
}

func (r *Runtime) runExec(ctx context.Context, id string, cmd []string, s cri.Session) (int, error) {
	handle, err := r.running(id)
	if err != nil {
		return 0, err
	}
	if len(cmd) == 0 {
		return 0, errors.New("no command")
	}
	return session.Exec(ctx, s, func(ctx context.Context, tty bool, fds []int) (int, error) {
		return handle.Run(ctx, cmd, tty, fds)
	})
}

// RunAttach connects a session to the process of a container. A client that is 1 MiB behind is ended.
func (r *Runtime) RunAttach(ctx context.Context, id string, s cri.Session) error {
	handle, err := r.running(id)
	if err == nil {
		err = session.Join(ctx, s, func(ctx context.Context, input, sizes bool, fds [2]int) (session.Container, error) {
			a, err := handle.Attach(ctx, shim.AttachOptions{Input: input, Sizes: sizes}, fds)
			if err != nil {
				return nil, err
			}
			return a, nil
		})
	}
	return fail("Attach", id, err)
}

// RunPortForward connects to a port on the loopback of a sandbox, which is the host's where the sandbox has no network of
// its own. A port that takes nothing for 5 s, with what was sent to it waiting, is disconnected with a reset.
func (r *Runtime) RunPortForward(ctx context.Context, id string, port int32, conn io.ReadWriteCloser) error {
	netns, err := r.netnsOf(id)
	if err == nil {
		err = portforward.Forward(ctx, netns, port, conn)
	} else {
		err = errors.Join(err, conn.Close())
	}
	return fail("PortForward", id, err)
}

// netnsOf returns the path of the network namespace of a sandbox that is ready, empty for the host's.
func (r *Runtime) netnsOf(id string) (string, error) {
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
