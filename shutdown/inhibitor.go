// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/login1"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Reasons and messages for the statuses of pods that a shutdown terminates or rejects. They are those of the kubelet.
const (
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	ReasonRejected    = "NodeShutdown"
	MessageRejected   = "Pod was rejected as the node is shutting down."

	// ReasonEvent is the reason of events about the node.
	ReasonEvent   = "Shutdown"
	eventStarted  = "Shutdown manager detected shutdown event"
	eventCanceled = "Shutdown manager detected shutdown cancellation"
)

// Timeouts for reporting the node as not ready, and for flushing pod statuses.
const (
	notReadyTimeout = 2 * time.Second
	flushTimeout    = 5 * time.Second
)

// watchBackoff is the back-off between attempts to connect to logind.
var watchBackoff = backoff.Policy{First: time.Second, Max: 30 * time.Second} //nolint:gochecknoglobals // never written

// Options configures an [Inhibitor]. The fields Periods, Pods and Stop are required.
type Options struct {
	Periods []Period // grace periods by pod priority; [Periods] returns those of the kubelet's two settings
	// Pods returns the pods to stop: those that have not terminated.
	Pods func() []*corev1.Pod
	// Stop terminates a pod with the grace period, and returns when it has terminated. ctx ends with the time of the pod's group;
	// then the next group is stopped.
	Stop func(ctx context.Context, pod *corev1.Pod, grace time.Duration) error
	// AwaitUnmount returns when all volumes of the terminated pods are unmounted. Nil: volumes are not waited for.
	AwaitUnmount func(ctx context.Context, pods []*corev1.Pod) error
	// ReportNotReady returns when the API server has the node as not ready; [Inhibitor.ShuttingDown] returns true by then. It has
	// 2 s. Nil: the node is not reported before the pods are stopped.
	ReportNotReady func(ctx context.Context) error
	// FlushStatuses returns when the API server has the statuses of all pods. It has 5 s. Nil: statuses are not waited for.
	FlushStatuses func(ctx context.Context) error
	// Event records an event about the node, of type Normal with [ReasonEvent]. Nil discards events.
	Event func(message string)

	Socket    string       // unix socket of the message bus; empty means that of the system
	ConfigDir string       // directory for logind configuration; empty means /etc/systemd/logind.conf.d
	StateDir  string       // directory of the kubelet's file graceful_node_shutdown_state; empty: no file is written
	Logger    *slog.Logger // nil discards
	Hooks     Hooks
}

// Hooks are called by an [Inhibitor]. Each hook may be nil, is called with no lock held, and must not block.
type Hooks struct {
	ShutdownStarted   func(at time.Time) // logind has announced a shutdown
	ShutdownCompleted func(at time.Time) // all pods are stopped and their statuses flushed
	Error             func(error)        // a function of Options or a call to logind failed; the shutdown continues
}

// Inhibitor delays a shutdown of the machine by a systemd-logind inhibitor until its pods are stopped. Create it with [New]. Its
// methods may be called from any goroutine, before, during and after Run.
type Inhibitor struct {
	opts  Options
	guard runonce.Guard

	mu            sync.Mutex // guards the fields below
	shuttingDown  bool
	watchError    error
	inhibitorFile *os.File // nil: no inhibitor is taken
}

var errNotWatching = errors.New("logind was not reached yet")

// New returns an Inhibitor with opts. It does not connect to logind; [Inhibitor.Run] does. The error names the missing or invalid
// option.
func New(opts Options) (*Inhibitor, error) {
	switch {
	case len(opts.Periods) == 0:
		return nil, errors.New("shutdown: New: Options.Periods: required; without any there is nothing to wait for, and no Inhibitor is needed")
	case opts.Pods == nil:
		return nil, errors.New("shutdown: New: Options.Pods: required")
	case opts.Stop == nil:
		return nil, errors.New("shutdown: New: Options.Stop: required")
	}
	if err := validatePeriods(opts.Periods); err != nil {
		return nil, fmt.Errorf("shutdown: New: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	i := &Inhibitor{opts: opts, watchError: errNotWatching}
	i.guard.Require("shutdown.Inhibitor", opts.Logger, nil)
	return i, nil
}

// ShuttingDown reports whether the machine is shutting down. While it returns true, [Inhibitor.Admit] returns an error for
// every pod, and the caller must report the node as not ready.
func (i *Inhibitor) ShuttingDown() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.shuttingDown
}

// WatchError returns nil if logind delays shutdowns of the machine for this Inhibitor. Otherwise it returns the reason why
// logind does not.
func (i *Inhibitor) WatchError() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.watchError
}

// Run delays shutdowns of the machine by a logind inhibitor, and stops the pods when logind announces a shutdown. It blocks until
// ctx ends, then releases the inhibitor and returns nil. A second call returns an error at once.
func (i *Inhibitor) Run(ctx context.Context) error {
	if err := i.guard.Begin(); err != nil {
		return fmt.Errorf("shutdown.Inhibitor: %w", err)
	}
	defer i.guard.End()
	defer i.releaseInhibitor()
	p := &podStopper{inhibitor: i}
	defer p.cancelAndWait()
	for failures := 1; ; failures++ {
		began := time.Now()
		err := i.watchLogind(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > watchBackoff.Max {
			failures = 1
		}
		i.setWatchError(err)
		if sleep.For(ctx, watchBackoff.After(failures)) != nil {
			return nil
		}
	}
}

// watchLogind takes a logind inhibitor and starts the shutdown procedure of p when logind announces a shutdown. It returns when
// the connection fails or ctx ends.
func (i *Inhibitor) watchLogind(ctx context.Context, p *podStopper) error {
	conn, err := login1.Dial(ctx, login1.Options{Socket: i.opts.Socket})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := i.extendDelay(ctx, conn); err != nil {
		return err
	}
	if !i.ShuttingDown() {
		if err := i.takeInhibitor(ctx, conn); err != nil {
			// During a shutdown logind accepts no inhibitor. The pods then have the time that other inhibitors take.
			if is, askErr := conn.PreparingForShutdown(ctx); askErr != nil || !is {
				return err
			}
		}
	}
	i.setWatchError(nil)
	var failed error
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	err = conn.Watch(within, func(shutdown bool) {
		if !i.setShuttingDown(shutdown) {
			return
		}
		if shutdown {
			p.start(ctx) // continues after watchLogind
			return
		}
		p.cancelAndWait()
		if failed = i.takeInhibitor(ctx, conn); failed != nil {
			cancel()
		}
	})
	return errors.Join(failed, err)
}

// extendDelay raises logind's InhibitDelayMaxSec, the longest delay of a shutdown, to at least the sum of all grace periods.
func (i *Inhibitor) extendDelay(ctx context.Context, conn *login1.Conn) error {
	need := sumPeriods(i.opts.Periods)
	is, err := conn.InhibitDelayMax(ctx)
	if err != nil || is >= need {
		return err
	}
	if err := login1.WriteInhibitDelay(i.opts.ConfigDir, need+notReadyTimeout+flushTimeout); err != nil {
		return err
	}
	if err := conn.Reload(ctx); err != nil {
		return err
	}
	for wait := 100 * time.Millisecond; wait <= 1600*time.Millisecond; wait *= 2 {
		if is, err = conn.InhibitDelayMax(ctx); err != nil || is >= need {
			return err
		}
		if err := sleep.For(ctx, wait); err != nil {
			return err
		}
	}
	return fmt.Errorf("logind waits %s for pods to stop, and Options.Periods need %s: another file in %s may set InhibitDelayMaxSec",
		is, need, cleanOrDefault(i.opts.ConfigDir, login1.ConfigDir))
}

func cleanOrDefault(a, b string) string {
	if a != "" {
		return filepath.Clean(a)
	}
	return b
}

// takeInhibitor requests a delay inhibitor from logind, stores it and closes the previous inhibitor. An inhibitor is a file:
// closing it lets a shutdown continue.
func (i *Inhibitor) takeInhibitor(ctx context.Context, conn *login1.Conn) error {
	lock, err := conn.Inhibit(ctx, "kubelet", "Pods of the node have to be stopped")
	if err != nil {
		return err
	}
	i.mu.Lock()
	old := i.inhibitorFile
	i.inhibitorFile = lock
	i.mu.Unlock()
	if old != nil {
		_ = old.Close() // closing an inhibitor cannot fail usefully
	}
	return nil
}

// releaseInhibitor closes the inhibitor, so that the machine can shut down.
func (i *Inhibitor) releaseInhibitor() {
	i.mu.Lock()
	lock := i.inhibitorFile
	i.inhibitorFile = nil
	i.mu.Unlock()
	if lock != nil {
		_ = lock.Close() // closing an inhibitor cannot fail usefully
	}
}

// setShuttingDown stores whether the machine is shutting down, and reports whether this has changed. It logs a change and
// records an event.
func (i *Inhibitor) setShuttingDown(shutdown bool) bool {
	i.mu.Lock()
	previous := i.shuttingDown
	i.shuttingDown = shutdown
	i.mu.Unlock()
	if previous == shutdown {
		return false
	}
	message := eventCanceled
	if shutdown {
		message = eventStarted
	}
	i.opts.Logger.Info("shutdown of the machine", "begun", shutdown)
	if i.opts.Event != nil {
		i.opts.Event(message)
	}
	return true
}

// setWatchError stores the result of [Inhibitor.WatchError]; nil means that logind delays shutdowns. A new error is logged
// and passed to Hooks.Error.
func (i *Inhibitor) setWatchError(err error) {
	i.mu.Lock()
	previous := i.watchError
	i.watchError = err
	i.mu.Unlock()
	switch {
	case err == nil:
		i.opts.Logger.Info("shutdowns of the machine wait for pods")
	case previous == nil || previous.Error() != err.Error():
		i.opts.Logger.Error("shutdowns of the machine do not wait for pods", "error", err)
		i.callErrorHook(err)
	}
}

func (i *Inhibitor) callErrorHook(err error) {
	if i.opts.Hooks.Error != nil {
		i.opts.Hooks.Error(err)
	}
}
