// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const defaultTimeout = time.Hour

// Options configures a [Runner].
type Options struct {
	// Execer runs the commands of exec handlers. Nil: exec handlers fail.
	Execer cri.Execer
	// Timeout limits a handler whose context has no deadline. Zero means 1 hour.
	Timeout time.Duration
	// Hooks are optional callbacks.
	Hooks Hooks
}

// Hooks are called by [Runner.Run] and must not block. Each may be nil.
type Hooks struct {
	// HTTPFallback is called when an HTTPS request was repeated over HTTP, because the server does not speak TLS. message is the
	// text for an event of the pod. The kubelet counts it in kubelet_lifecycle_handler_http_fallbacks_total.
	HTTPFallback func(c Call, message string)
	// SleepTerminated is called when a sleep was interrupted. The kubelet counts it in
	// kubelet_lifecycle_handler_sleep_terminated_total.
	SleepTerminated func(c Call)
}

// Call identifies the container that a lifecycle handler runs for.
type Call struct {
	Pod         *corev1.Pod       // only name, namespace and UID are used
	Container   *corev1.Container // only name and ports are used
	ContainerID string            // of the runtime
	Attempt     uint32            // restart count of the container; only passed to Hooks
	PodIP       string            // first address of the pod; for a host-network pod that of the node
}

// Runner runs postStart and preStop handlers. Use [New] to create it.
type Runner struct {
	opts Options
}

// New returns a Runner with these options. It starts no goroutine.
func New(opts Options) *Runner {
	opts.Timeout = cmp.Or(opts.Timeout, defaultTimeout)
	return &Runner{opts: opts}
}

// Run runs handler in the container of call until the handler returns or ctx ends. A non-nil error is an [*Error].
func (r *Runner) Run(ctx context.Context, call Call, handler *corev1.LifecycleHandler) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.Timeout)
		defer cancel()
	}
	var output string
	var err error
	switch {
	case handler.Exec != nil:
		output, err = r.runCommand(ctx, call, handler.Exec.Command)
	case handler.HTTPGet != nil:
		err = r.sendHTTPGet(ctx, call, handler.HTTPGet)
	case handler.Sleep != nil:
		err = r.runSleep(ctx, call, handler.Sleep.Seconds)
	case handler.TCPSocket != nil:
		err = errors.New("tcpSocket handlers are not run")
	default:
		err = errors.New("is none of exec, httpGet and sleep")
	}
	if err != nil {
		return &Error{Call: call, Handler: handler, Output: output, Err: err}
	}
	return nil
}

// runSleep waits for the given number of seconds. If ctx ends first, it calls Hooks.SleepTerminated with call and returns
// an error.
func (r *Runner) runSleep(ctx context.Context, call Call, seconds int64) error {
	const most = math.MaxInt64 / int64(time.Second)
	if sleep.For(ctx, time.Duration(min(max(seconds, 0), most))*time.Second) == nil {
		return nil
	}
	if r.opts.Hooks.SleepTerminated != nil {
		r.opts.Hooks.SleepTerminated(call)
	}
	return errors.New("container terminated before sleep hook finished")
}
