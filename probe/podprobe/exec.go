// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe

import (
	"context"
	"errors"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/probe"
)

const (
	// detachedTimeout is how long a runtime call may continue after its probe has timed out.
	detachedTimeout = 10 * time.Second
	// maxOutput is the number of bytes that a command may write. The runtime returns the whole output at once, for every running
	// probe.
	maxOutput = 1 << 20
	// maxDetached is the number of runtime calls that may continue after their probes have timed out. Further calls are cancelled
	// at the deadline.
	maxDetached = 256
)

// CRI returns an Execer that runs commands with ExecSync of a container runtime. It keeps at most [probe.MaxOutput] bytes of the
// output. More than 1 MiB of output is an error. Source: ExecSync in k8s.io/cri-client/pkg/remote_runtime.go.
//
// Exec returns when its context ends. A context without a deadline means no timeout, like timeoutSeconds 0 in the kubelet. After
// a deadline, the runtime call continues in the background for at most ten seconds: if it were cancelled while containerd 2.4
// starts the command, the command would run forever. When a [probe.Set] ends, its Run waits for these calls and cancels them
// after a second. Differs from the kubelet, which waits up to two minutes for the runtime.
//
// Background processes of a command may hold its output open. The probe then times out with containerd, but not with package
// process. If the container of a command terminates, the exit code is 137, or Exec returns an error.
func CRI(runtime cri.Execer) probe.Execer {
	required.MustArgs("podprobe.CRI", required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"})
	return &execer{runtime: runtime, detached: make(chan struct{}, maxDetached)}
}

// execer implements probe.Execer with a container runtime.
type execer struct {
	runtime  cri.Execer
	detached chan struct{} // has an element for each call that continues after its deadline
}

// execResult is the result of an ExecSync call.
type execResult struct {
	result cri.ExecResult
	err    error
}

// Exec runs a command in the container until it exits or ctx ends.
func (e *execer) Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), 1) // zero would mean no limit
	}
	outlast, returned := probe.DetachContext(ctx)
	call, cancel := context.WithCancel(cri.WithMaxOutput(outlast, maxOutput))
	ended := make(chan execResult, 1)
	go func() {
		defer returned()
		defer cancel()
		var x execResult
		x.result, x.err = e.runtime.ExecSync(call, containerID, command, timeout)
		ended <- x
	}()
	select {
	case x := <-ended:
		return joinOutput(x.result.Stdout, x.result.Stderr), x.result.ExitCode, x.err
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !e.detachCall(call, cancel) {
		cancel()
		<-ended
	}
	return nil, 0, ctx.Err()
}

// detachCall lets a runtime call with this context continue in the background until detachedTimeout. It returns false if
// maxDetached calls already do.
func (e *execer) detachCall(call context.Context, cancel context.CancelFunc) bool {
	select {
	case e.detached <- struct{}{}:
	default:
		return false
	}
	timer := time.AfterFunc(detachedTimeout, cancel)
	context.AfterFunc(call, func() {
		timer.Stop()
		<-e.detached
	})
	return true
}

// joinOutput returns a copy of stdout followed by stderr, limited to the first [probe.MaxOutput] bytes.
func joinOutput(stdout, stderr []byte) []byte {
	stdout = stdout[:min(len(stdout), probe.MaxOutput)]
	stderr = stderr[:min(len(stderr), probe.MaxOutput-len(stdout))]
	return append(append(make([]byte, 0, len(stdout)+len(stderr)), stdout...), stderr...)
}
