// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

const (
	execOverhead = 1 << 10 // bytes of an answer of ExecSync beside the output
	maxReceiving = 2       // answers of ExecSync without cri.WithMaxOutput that are received at a time
)

// ExecSync runs a command in a container to its end. Of [cri.WithMaxOutput] it takes the bound of an answer. Without one, an answer may have
// 16 MiB: two are received at a time, so that many commands that end together do not take that for each.
func (c *Client) ExecSync(
	ctx context.Context, containerID string, cmd []string, timeout time.Duration,
) (cri.ExecResult, error) {
	o := op{name: "ExecSync", id: containerID, extra: timeout}
	if timeout <= 0 {
		o.extra = math.MaxInt64 // as long as the command takes
	}
	began := time.Now()
	rpc := c.execInTurn
	if most, ok := cri.MaxOutput(ctx); ok {
		rpc = func(ctx context.Context, q *v1.ExecSyncRequest, options ...grpc.CallOption) (*v1.ExecSyncResponse, error) {
			return c.runtime.ExecSync(ctx, q, append(options, grpc.MaxCallRecvMsgSize(most+execOverhead))...)
		}
	}
	r, err := call(ctx, c, o, rpc,
		&v1.ExecSyncRequest{ContainerId: containerID, Cmd: cmd, Timeout: seconds(timeout)})
	if err != nil {
		return cri.ExecResult{}, err
	}
	if isTimeout(r, timeout, time.Since(began)) {
		return cri.ExecResult{}, o.fail(context.DeadlineExceeded)
	}
	return cri.ExecResult{Stdout: r.GetStdout(), Stderr: r.GetStderr(), ExitCode: int(r.GetExitCode())}, nil
}

// execInTurn calls ExecSync, and receives the answer when no more than maxReceiving are being received. Until then the runtime keeps all but
// windowSize bytes of it.
func (c *Client) execInTurn(ctx context.Context, q *v1.ExecSyncRequest, options ...grpc.CallOption) (*v1.ExecSyncResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{}, v1.RuntimeService_ExecSync_FullMethodName, options...)
	if err != nil {
		return nil, c.conn.translate(err)
	}
	if err := stream.SendMsg(q); err != nil && !errors.Is(err, io.EOF) { // with EOF, RecvMsg returns the error
		return nil, c.conn.translate(err)
	}
	_, _ = stream.Header() // comes with the answer; RecvMsg returns an error
	select {
	case c.receiving <- struct{}{}:
		defer func() { <-c.receiving }()
	case <-ctx.Done(): // RecvMsg returns it
	}
	answer := new(v1.ExecSyncResponse)
	if err := stream.RecvMsg(answer); err != nil {
		return nil, c.conn.translate(err)
	}
	return answer, nil
}

// isTimeout recognises the answer of CRI-O for a command that ran out of time: success with an exit code that no process has.
func isTimeout(r *v1.ExecSyncResponse, timeout, took time.Duration) bool {
	return r.GetExitCode() == -1 && timeout > 0 && took >= timeout
}

// Exec returns the URL of a session that runs cmd.
func (c *Client) Exec(
	ctx context.Context, containerID string, cmd []string, s cri.StreamOptions,
) (string, error) {
	o := op{name: "Exec", id: containerID}
	r, err := call(ctx, c, o, c.runtime.Exec, &v1.ExecRequest{
		ContainerId: containerID, Cmd: cmd,
		Tty: s.TTY, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr,
	})
	return sessionURL(o, r, err)
}

// Attach returns the URL of a session with the container's own process.
func (c *Client) Attach(ctx context.Context, containerID string, s cri.StreamOptions) (string, error) {
	o := op{name: "Attach", id: containerID}
	r, err := call(ctx, c, o, c.runtime.Attach, &v1.AttachRequest{
		ContainerId: containerID,
		Tty:         s.TTY, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr,
	})
	return sessionURL(o, r, err)
}

// PortForward returns the URL of a session that forwards to ports inside the sandbox.
func (c *Client) PortForward(ctx context.Context, sandboxID string, ports []int32) (string, error) {
	o := op{name: "PortForward", id: sandboxID}
	r, err := call(ctx, c, o, c.runtime.PortForward,
		&v1.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	return sessionURL(o, r, err)
}

// Checkpoint has the runtime write an archive of a container. It may take its timeout longer than other calls. A runtime
// that cannot, as containerd without CRIU, says so itself.
func (c *Client) Checkpoint(ctx context.Context, containerID, location string, timeout time.Duration) error {
	o := op{name: "CheckpointContainer", id: containerID, extra: timeout}
	_, err := call(ctx, c, o, c.runtime.CheckpointContainer,
		&v1.CheckpointContainerRequest{ContainerId: containerID, Location: location, Timeout: seconds(timeout)})
	return err
}

func sessionURL(o op, r interface{ GetUrl() string }, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.GetUrl(), o.require(field{"url", r.GetUrl() != ""})
}
