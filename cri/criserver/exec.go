// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

func (r *runtimeService) ExecSync(ctx context.Context, q *v1.ExecSyncRequest) (*v1.ExecSyncResponse, error) {
	if r.server.execer == nil {
		return nil, lacking("exec")
	}
	result, err := r.server.execer.ExecSync(ctx, q.GetContainerId(), q.GetCmd(), duration(q.GetTimeout()))
	if err != nil {
		return nil, err
	}
	return &v1.ExecSyncResponse{
		Stdout: result.Stdout, Stderr: result.Stderr, ExitCode: int32(result.ExitCode),
	}, nil
}

func (r *runtimeService) Exec(ctx context.Context, q *v1.ExecRequest) (*v1.ExecResponse, error) {
	o := streamOptions(q)
	if err := r.server.checkSession(ctx, "streaming exec", q.GetContainerId(), o); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.Exec(ctx, q.GetContainerId(), q.GetCmd(), o)
	if err != nil {
		return nil, err
	}
	return &v1.ExecResponse{Url: url}, nil
}

func (r *runtimeService) Attach(ctx context.Context, q *v1.AttachRequest) (*v1.AttachResponse, error) {
	o := streamOptions(q)
	if err := r.server.checkSession(ctx, "attach", q.GetContainerId(), o); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.Attach(ctx, q.GetContainerId(), o)
	if err != nil {
		return nil, err
	}
	return &v1.AttachResponse{Url: url}, nil
}

// checkSession says why there can be no session with a container. Where others than the runtime make URLs, a request is checked
// here, and the runtime is asked first whether the container runs: a client that is refused at the URL gets another status.
func (s *Server) checkSession(ctx context.Context, what, containerID string, o cri.StreamOptions) error {
	switch {
	case s.streamer == nil:
		return s.lackingStreamer(what)
	case !s.asksFirst:
		return nil
	case containerID == "":
		return missing("container_id")
	case o.TTY && o.Stderr:
		return status.Error(codes.InvalidArgument, "stderr: must not be set beside tty")
	case !o.Stdin && !o.Stdout && !o.Stderr:
		return missing("stdin, stdout, stderr: one of them")
	}
	c, err := s.container(ctx, containerID)
	if err == nil && c.State != cri.ContainerRunning {
		err = status.Errorf(codes.FailedPrecondition, "container %s is %v, not running", containerID, c.State)
	}
	return err
}

func (r *runtimeService) PortForward(
	ctx context.Context, q *v1.PortForwardRequest,
) (*v1.PortForwardResponse, error) {
	if err := r.server.checkForward(ctx, q.GetPodSandboxId()); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.PortForward(ctx, q.GetPodSandboxId(), q.GetPort())
	if err != nil {
		return nil, err
	}
	return &v1.PortForwardResponse{Url: url}, nil
}

// checkForward says why there can be no session with a sandbox, as checkSession does.
func (s *Server) checkForward(ctx context.Context, sandboxID string) error {
	switch {
	case s.streamer == nil:
		return s.lackingStreamer("port forward")
	case !s.asksFirst:
		return nil
	case sandboxID == "":
		return missing("pod_sandbox_id")
	}
	sandbox, err := s.sandbox(ctx, sandboxID)
	if err == nil && sandbox.State != cri.SandboxReady {
		err = status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", sandboxID)
	}
	return err
}

func (r *runtimeService) CheckpointContainer(
	ctx context.Context, q *v1.CheckpointContainerRequest,
) (*v1.CheckpointContainerResponse, error) {
	if r.server.freezer == nil {
		return nil, lacking("checkpoint")
	}
	err := r.server.freezer.Checkpoint(ctx, q.GetContainerId(), q.GetLocation(), duration(q.GetTimeout()))
	return &v1.CheckpointContainerResponse{}, err
}

func streamOptions(q interface {
	GetStdin() bool
	GetStdout() bool
	GetStderr() bool
	GetTty() bool
},
) cri.StreamOptions {
	return cri.StreamOptions{
		Stdin: q.GetStdin(), Stdout: q.GetStdout(), Stderr: q.GetStderr(), TTY: q.GetTty(),
	}
}

// lackingStreamer is the error for a call that nobody makes a URL for.
func (s *Server) lackingStreamer(what string) error {
	if _, ok := s.runtime.(cri.SessionRunner); ok {
		return fmt.Errorf("%s: %w: Options.Streamer of the server is not set, and the runtime only runs sessions", what, errors.ErrUnsupported)
	}
	return lacking(what)
}

// maxOutput is how much of stdout and of stderr a runtime keeps of a command.
const maxOutput = 16 << 20

// sessionExecer runs commands to their end on a runtime that has sessions only.
type sessionExecer struct{ runner cri.SessionRunner }

func (e sessionExecer) ExecSync(
	ctx context.Context, containerID string, cmd []string, timeout time.Duration,
) (cri.ExecResult, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errs capped
	code, err := e.runner.RunExec(ctx, containerID, cmd, cri.Session{Stdout: &out, Stderr: &errs})
	if err != nil {
		return cri.ExecResult{}, err
	}
	return cri.ExecResult{Stdout: out.Bytes(), Stderr: errs.Bytes(), ExitCode: code}, nil
}

// capped keeps the beginning of what is written to it.
type capped struct{ bytes.Buffer }

func (b *capped) Write(p []byte) (int, error) {
	_, err := b.Buffer.Write(p[:min(len(p), maxOutput-b.Len())])
	return len(p), err
}
