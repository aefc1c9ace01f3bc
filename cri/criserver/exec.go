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

func (r *runtimeService) ExecSync(ctx context.Context, req *v1.ExecSyncRequest) (*v1.ExecSyncResponse, error) {
	if r.server.execer == nil {
		return nil, errUnsupportedCall("exec")
	}
	result, err := r.server.execer.ExecSync(ctx, req.GetContainerId(), req.GetCmd(), secondsToDuration(req.GetTimeout()))
	if err != nil {
		return nil, err
	}
	return &v1.ExecSyncResponse{
		Stdout: result.Stdout, Stderr: result.Stderr, ExitCode: int32(result.ExitCode),
	}, nil
}

func (r *runtimeService) Exec(ctx context.Context, req *v1.ExecRequest) (*v1.ExecResponse, error) {
	o := streamOptions(req)
	if err := r.server.checkSession(ctx, "streaming exec", req.GetContainerId(), o); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.Exec(ctx, req.GetContainerId(), req.GetCmd(), o)
	if err != nil {
		return nil, err
	}
	return &v1.ExecResponse{Url: url}, nil
}

func (r *runtimeService) Attach(ctx context.Context, req *v1.AttachRequest) (*v1.AttachResponse, error) {
	o := streamOptions(req)
	if err := r.server.checkSession(ctx, "attach", req.GetContainerId(), o); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.Attach(ctx, req.GetContainerId(), o)
	if err != nil {
		return nil, err
	}
	return &v1.AttachResponse{Url: url}, nil
}

// checkSession returns an error if the server cannot serve this exec or attach session.
func (s *Server) checkSession(ctx context.Context, call, containerID string, opts cri.StreamOptions) error {
	switch {
	case s.streamer == nil:
		return s.errNoStreamer(call)
	case !s.checksState:
		return nil
	// Checked before the URL is returned: a client of the URL would get another HTTP status.
	case containerID == "":
		return errMissingField("container_id")
	case opts.TTY && opts.Stderr:
		return status.Error(codes.InvalidArgument, "stderr: must not be set beside tty")
	case !opts.Stdin && !opts.Stdout && !opts.Stderr:
		return errMissingField("stdin, stdout, stderr: one of them")
	}
	c, err := s.containerDetails(ctx, containerID)
	if err == nil && c.State != cri.ContainerRunning {
		err = status.Errorf(codes.FailedPrecondition, "container %s is %v, not running", containerID, c.State)
	}
	return err
}

func (r *runtimeService) PortForward(
	ctx context.Context, req *v1.PortForwardRequest,
) (*v1.PortForwardResponse, error) {
	if err := r.server.checkForward(ctx, req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	url, err := r.server.streamer.PortForward(ctx, req.GetPodSandboxId(), req.GetPort())
	if err != nil {
		return nil, err
	}
	return &v1.PortForwardResponse{Url: url}, nil
}

// checkForward returns an error if the sandbox cannot have a port-forward session, for example because it is not ready.
func (s *Server) checkForward(ctx context.Context, sandboxID string) error {
	switch {
	case s.streamer == nil:
		return s.errNoStreamer("port forward")
	case !s.checksState:
		return nil
	case sandboxID == "":
		return errMissingField("pod_sandbox_id")
	}
	sandbox, err := s.sandboxDetails(ctx, sandboxID)
	if err == nil && sandbox.State != cri.SandboxReady {
		err = status.Errorf(codes.FailedPrecondition, "sandbox %s is not ready", sandboxID)
	}
	return err
}

func (r *runtimeService) CheckpointContainer(
	ctx context.Context, req *v1.CheckpointContainerRequest,
) (*v1.CheckpointContainerResponse, error) {
	if r.server.checkpointer == nil {
		return nil, errUnsupportedCall("checkpoint")
	}
	err := r.server.checkpointer.Checkpoint(ctx, req.GetContainerId(), req.GetLocation(), secondsToDuration(req.GetTimeout()))
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

// errNoStreamer returns the error for a session request if the server has no Options.Streamer.
func (s *Server) errNoStreamer(call string) error {
	if _, ok := s.runtime.(cri.SessionRunner); ok {
		return fmt.Errorf("%s: %w: Options.Streamer of the server is not set, and the runtime only runs sessions", call, errors.ErrUnsupported)
	}
	return errUnsupportedCall(call)
}

// maxOutput is the maximum number of bytes kept of stdout and of stderr of an ExecSync command.
const maxOutput = 16 << 20

// sessionExecer implements cri.Execer with the sessions of a runtime.
type sessionExecer struct{ runner cri.SessionRunner }

func (e sessionExecer) ExecSync(
	ctx context.Context, containerID string, cmd []string, timeout time.Duration,
) (cri.ExecResult, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errs cappedBuffer
	code, err := e.runner.RunExec(ctx, containerID, cmd, cri.Session{Stdout: &out, Stderr: &errs})
	if err != nil {
		return cri.ExecResult{}, err
	}
	return cri.ExecResult{Stdout: out.Bytes(), Stderr: errs.Bytes(), ExitCode: code}, nil
}

// cappedBuffer keeps the first maxOutput bytes written to it and drops the rest.
type cappedBuffer struct{ bytes.Buffer }

func (b *cappedBuffer) Write(data []byte) (int, error) {
	_, err := b.Buffer.Write(data[:min(len(data), maxOutput-b.Len())])
	return len(data), err
}
