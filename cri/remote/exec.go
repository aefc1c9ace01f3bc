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
	execOverhead = 1 << 10 // bytes of an ExecSync response besides the output
	maxReceiving = 2       // ExecSync responses received at a time without cri.WithMaxOutput
)

// ExecSync runs a command in a container until it exits, and returns its output and exit code. The response may have up to
// 16 MiB, or [cri.WithMaxOutput]. To save memory, it receives at most two full-size responses at a time.
func (c *Client) ExecSync(
	ctx context.Context, containerID string, cmd []string, timeout time.Duration,
) (cri.ExecResult, error) {
	o := callInfo{name: "ExecSync", id: containerID, extra: timeout}
	if timeout <= 0 {
		o.extra = math.MaxInt64 // no limit except ctx
	}
	began := time.Now()
	rpc := c.execWithSlot
	if most, ok := cri.MaxOutput(ctx); ok {
		rpc = func(ctx context.Context, q *v1.ExecSyncRequest, options ...grpc.CallOption) (*v1.ExecSyncResponse, error) {
			return c.runtime.ExecSync(ctx, q, append(options, grpc.MaxCallRecvMsgSize(most+execOverhead))...)
		}
	}
	r, err := invoke(ctx, c, o, rpc,
		&v1.ExecSyncRequest{ContainerId: containerID, Cmd: cmd, Timeout: roundUpToSeconds(timeout)})
	if err != nil {
		return cri.ExecResult{}, err
	}
	if isTimeout(r, timeout, time.Since(began)) {
		return cri.ExecResult{}, o.wrapError(context.DeadlineExceeded)
	}
	return cri.ExecResult{Stdout: r.GetStdout(), Stderr: r.GetStderr(), ExitCode: int(r.GetExitCode())}, nil
}

// execWithSlot makes an ExecSync call that waits for a slot before it receives a long response.
func (c *Client) execWithSlot(ctx context.Context, req *v1.ExecSyncRequest, options ...grpc.CallOption) (*v1.ExecSyncResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the stream
	stream, err := c.conn.NewStream(ctx, &grpc.StreamDesc{}, v1.RuntimeService_ExecSync_FullMethodName, options...)
	if err != nil {
		return nil, c.conn.translateError(err)
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // with io.EOF, RecvMsg returns the error
		return nil, c.conn.translateError(err)
	}
	// until a slot is free, at most windowSize bytes are in memory
	_, _ = stream.Header() // arrives with the response; RecvMsg returns the error
	select {
	case c.receiveSlots <- struct{}{}:
		defer func() { <-c.receiveSlots }()
	case <-ctx.Done(): // RecvMsg returns the error
	}
	answer := new(v1.ExecSyncResponse)
	if err := stream.RecvMsg(answer); err != nil {
		return nil, c.conn.translateError(err)
	}
	return answer, nil
}

// isTimeout reports whether the runtime has killed the command after the timeout.
func isTimeout(resp *v1.ExecSyncResponse, timeout, took time.Duration) bool {
	// CRI-O returns no error but exit code -1, which no process returns
	return resp.GetExitCode() == -1 && timeout > 0 && took >= timeout
}

// Exec returns a URL of the runtime. A client that connects to the URL runs the command in the container, with the streams
// in opts.
func (c *Client) Exec(
	ctx context.Context, containerID string, cmd []string, opts cri.StreamOptions,
) (string, error) {
	o := callInfo{name: "Exec", id: containerID}
	r, err := invoke(ctx, c, o, c.runtime.Exec, &v1.ExecRequest{
		ContainerId: containerID, Cmd: cmd,
		Tty: opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr,
	})
	return sessionURL(o, r, err)
}

// Attach returns a URL of the runtime. A client that connects to the URL is attached to the container's main process, with
// the streams in opts.
func (c *Client) Attach(ctx context.Context, containerID string, opts cri.StreamOptions) (string, error) {
	o := callInfo{name: "Attach", id: containerID}
	r, err := invoke(ctx, c, o, c.runtime.Attach, &v1.AttachRequest{
		ContainerId: containerID,
		Tty:         opts.TTY, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr,
	})
	return sessionURL(o, r, err)
}

// PortForward returns a URL of the runtime. A client that connects to the URL can forward connections to the given ports of
// the sandbox.
func (c *Client) PortForward(ctx context.Context, sandboxID string, ports []int32) (string, error) {
	o := callInfo{name: "PortForward", id: sandboxID}
	r, err := invoke(ctx, c, o, c.runtime.PortForward,
		&v1.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	return sessionURL(o, r, err)
}

// Checkpoint makes the runtime write a checkpoint archive of a container to the file at location. The time limit of the call
// is extended by timeout. A runtime that cannot checkpoint, such as containerd without CRIU, returns an error.
func (c *Client) Checkpoint(ctx context.Context, containerID, location string, timeout time.Duration) error {
	o := callInfo{name: "CheckpointContainer", id: containerID, extra: timeout}
	_, err := invoke(ctx, c, o, c.runtime.CheckpointContainer,
		&v1.CheckpointContainerRequest{ContainerId: containerID, Location: location, Timeout: roundUpToSeconds(timeout)})
	return err
}

func sessionURL(info callInfo, r interface{ GetUrl() string }, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return r.GetUrl(), info.requireFields(requiredField{"url", r.GetUrl() != ""})
}
