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
	// lateTime is how long after its deadline a call to the runtime may go on.
	detachedTimeout = 10 * time.Second
	// maxOutput is how many bytes a command may write. The runtime sends them at once, for as many probes as are in flight.
	maxOutput = 1 << 20
	// maxLate is how many calls may do so at the same time. Others are given up at their deadline.
	maxDetached = 256
)

// CRI returns an execer that runs commands through a container runtime. It keeps at most [probe.MaxOutput] bytes of
// what a command writes. Source: ExecSync in k8s.io/cri-client/pkg/remote_runtime.go.
//
// Exec returns when its context ends. At a deadline the call to the runtime goes on without it, for ten seconds at most,
// so that the runtime ends the command by its own clock, which has whole seconds: if the call is given up while
// containerd 2.4 starts the command, containerd loses it, and it runs without end. When a [probe.Set] ends, its Run waits for
// such calls, and gives them up after a second: by then the runtime's clock has ended the command. The kubelet waits for
// the runtime instead, up to two minutes. A context without a deadline sets no limit, as timeoutSeconds 0 in the kubelet.
//
// What a command leaves in the background belongs to its container and ends with it. While that holds the output open,
// containerd does not answer, and the probe runs out of time; package process answers. Of a command that runs out of
// time containerd leaves what it has started, too. More than 1 MiB of output are an error, where the runtime sends
// them at once: the memory of a node is not for that. A command whose container terminates has exit code 137, or is an error.
func CRI(runtime cri.Execer) probe.Execer {
	required.MustArgs("podprobe.CRI", required.Arg{Name: "runtime", Value: runtime, Hint: "a *remote.Client"})
	return &execer{runtime: runtime, detached: make(chan struct{}, maxDetached)}
}

// execer is a runtime that runs commands.
type execer struct {
	runtime  cri.Execer
	detached chan struct{} // holds a token for each call that goes on after its deadline
}

// execution is what a call to the runtime came to.
type execResult struct {
	result cri.ExecResult
	err    error
}

// Exec runs a command until it ends, or ctx does.
func (e *execer) Exec(ctx context.Context, containerID string, command []string) (output []byte, exitCode int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	var timeout time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(deadline), 1) // zero would be no limit
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

// leave lets a call go on without its caller. It reports whether it may.
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

// head returns a copy of the first [probe.MaxOutput] bytes of both, one after the other.
func joinOutput(stdout, stderr []byte) []byte {
	stdout = stdout[:min(len(stdout), probe.MaxOutput)]
	stderr = stderr[:min(len(stderr), probe.MaxOutput-len(stdout))]
	return append(append(make([]byte, 0, len(stdout)+len(stderr)), stdout...), stderr...)
}
