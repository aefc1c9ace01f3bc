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
	// Execer runs the commands of exec handlers. Nil: they fail.
	Execer cri.Execer
	// Timeout ends a handler whose context has no deadline. Zero means 1 hour.
	Timeout time.Duration
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are called from [Runner.Run] and must not block. Any may be nil.
type Hooks struct {
	// HTTPFallback is called when a server did not speak TLS and took the request without. The message is for an event of
	// the pod. The kubelet counts it as kubelet_lifecycle_handler_http_fallbacks_total.
	HTTPFallback func(c Call, message string)
	// SleepTerminated is called when a sleep did not last as long as asked for. The kubelet counts it as
	// kubelet_lifecycle_handler_sleep_terminated_total.
	SleepTerminated func(c Call)
}

// Call says for which container a handler is run.
type Call struct {
	Pod         *corev1.Pod       // only its name, namespace and UID matter
	Container   *corev1.Container // only its name and ports matter
	ContainerID string            // as the runtime knows it
	Attempt     uint32            // how often the container was restarted; for [Hooks] alone
	PodIP       string            // the pod's first address; of a pod on the network of its host, the node's
}

// Runner runs handlers. Make one with [New].
type Runner struct {
	opts Options
}

// New returns a Runner. It starts nothing.
func New(o Options) *Runner {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	return &Runner{opts: o}
}

// Run runs a handler to its end, or until ctx ends. The error is an [*Error].
func (r *Runner) Run(ctx context.Context, c Call, h *corev1.LifecycleHandler) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.opts.Timeout)
		defer cancel()
	}
	var output string
	var err error
	switch {
	case h.Exec != nil:
		output, err = r.exec(ctx, c, h.Exec.Command)
	case h.HTTPGet != nil:
		err = r.httpGet(ctx, c, h.HTTPGet)
	case h.Sleep != nil:
		err = r.sleep(ctx, c, h.Sleep.Seconds)
	case h.TCPSocket != nil:
		err = errors.New("tcpSocket handlers are not run")
	default:
		err = errors.New("is none of exec, httpGet and sleep")
	}
	if err != nil {
		return &Error{Call: c, Handler: h, Output: output, Err: err}
	}
	return nil
}

// sleep waits. A negative time is over at once.
func (r *Runner) sleep(ctx context.Context, c Call, seconds int64) error {
	const most = math.MaxInt64 / int64(time.Second)
	if sleep.For(ctx, time.Duration(min(max(seconds, 0), most))*time.Second) == nil {
		return nil
	}
	if r.opts.Hooks.SleepTerminated != nil {
		r.opts.Hooks.SleepTerminated(c)
	}
	return errors.New("container terminated before sleep hook finished")
}
