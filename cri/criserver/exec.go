// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"

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
	if r.server.streamer == nil {
		return nil, lacking("streaming exec")
	}
	url, err := r.server.streamer.Exec(ctx, q.GetContainerId(), q.GetCmd(), streamOptions(q))
	if err != nil {
		return nil, err
	}
	return &v1.ExecResponse{Url: url}, nil
}

func (r *runtimeService) Attach(ctx context.Context, q *v1.AttachRequest) (*v1.AttachResponse, error) {
	if r.server.streamer == nil {
		return nil, lacking("attach")
	}
	url, err := r.server.streamer.Attach(ctx, q.GetContainerId(), streamOptions(q))
	if err != nil {
		return nil, err
	}
	return &v1.AttachResponse{Url: url}, nil
}

func (r *runtimeService) PortForward(
	ctx context.Context, q *v1.PortForwardRequest,
) (*v1.PortForwardResponse, error) {
	if r.server.streamer == nil {
		return nil, lacking("port forward")
	}
	url, err := r.server.streamer.PortForward(ctx, q.GetPodSandboxId(), q.GetPort())
	if err != nil {
		return nil, err
	}
	return &v1.PortForwardResponse{Url: url}, nil
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
