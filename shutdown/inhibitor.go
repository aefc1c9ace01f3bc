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

// What a pod is told that is stopped, and one that is not admitted, in the kubelet's words.
const (
	ReasonTerminated  = "Terminated"
	MessageTerminated = "Pod was terminated in response to imminent node shutdown."
	ReasonRejected    = "NodeShutdown"
	MessageRejected   = "Pod was rejected as the node is shutting down."

	// ReasonEvent is that of the events about the node.
	ReasonEvent   = "Shutdown"
	eventBegun    = "Shutdown manager detected shutdown event"
	eventCanceled = "Shutdown manager detected shutdown cancellation"
)

// What goes before and after the pods.
const (
	announceTime = 2 * time.Second
	flushTime    = 5 * time.Second
)

// watchBackoff is between attempts to watch logind.
var watchBackoff = backoff.Policy{First: time.Second, Max: 30 * time.Second} //nolint:gochecknoglobals // never written

// Options tune an [Inhibitor]. Periods, Pods and Stop are required.
type Options struct {
	Periods []Period // of all pods: those of [Periods], or a list by priority
	// Pods returns the pods that are to be stopped: those that have not terminated.
	Pods func() []*corev1.Pod
	// Stop stops a pod within its grace, and returns when it is down. Ctx ends with the time of its group, and then the next group's turn comes.
	Stop func(ctx context.Context, pod *corev1.Pod, grace time.Duration) error
	// Unmounted returns when no volume of the pods, which are down, is mounted any more. Nil: it is not waited for.
	AwaitUnmount func(ctx context.Context, pods []*corev1.Pod) error
	// Announce returns when the API server shows the node as not ready; [Inhibitor.ShuttingDown] is true by then. It has 2 s. Nil: nothing is
	// shown first.
	ReportNotReady func(ctx context.Context) error
	// Flush returns when the API server has the statuses of all pods. It has 5 s. Nil: it is not waited for.
	FlushStatuses func(ctx context.Context) error
	// Event gets what is to be told about the node: of type Normal, with [ReasonEvent]. Nil discards it.
	Event func(message string)

	Socket    string       // of the message bus; empty means that of the system
	ConfigDir string       // of logind; empty means /etc/systemd/logind.conf.d
	StateDir  string       // for the file graceful_node_shutdown_state, as the kubelet has it; empty: none
	Logger    *slog.Logger // nil discards
	Hooks     Hooks
}

// Hooks hear of what an [Inhibitor] does. Each may be nil, is called with no lock held, and must not block.
type Hooks struct {
	ShutdownStarted   func(at time.Time) // a shutdown has begun
	ShutdownCompleted func(at time.Time) // all that is done for it is done
	Error             func(error)        // of a function of Options, or of logind; the shutdown goes on
}

// Inhibitor has the machine wait with a shutdown until the pods are stopped. Its methods may be called from any goroutine, before, during and
// after Run.
type Inhibitor struct {
	opts  Options
	guard runonce.Guard

	mu       sync.Mutex // guards what follows
	shutdown bool
	watching error
	lock     *os.File // nil: logind does not wait for us
}

var errNotWatching = errors.New("logind was not reached yet")

// New returns an inhibitor, and does nothing else. The error says what of o is missing or invalid.
func New(o Options) (*Inhibitor, error) {
	switch {
	case len(o.Periods) == 0:
		return nil, errors.New("shutdown: New: Options.Periods: required; without any there is nothing to wait for, and no Inhibitor is needed")
	case o.Pods == nil:
		return nil, errors.New("shutdown: New: Options.Pods: required")
	case o.Stop == nil:
		return nil, errors.New("shutdown: New: Options.Stop: required")
	}
	if err := validate(o.Periods); err != nil {
		return nil, fmt.Errorf("shutdown: New: %w", err)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	i := &Inhibitor{opts: o, watching: errNotWatching}
	i.guard.Require("shutdown.Inhibitor", o.Logger, nil)
	return i, nil
}

// ShuttingDown reports whether the machine is shutting down: the node is not ready then, and no pod is admitted.
func (i *Inhibitor) ShuttingDown() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.shutdown
}

// Watching returns nil while a shutdown would be noticed and would wait, or why not.
func (i *Inhibitor) WatchError() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.watching
}

// Run watches for shutdowns until ctx ends, and returns nil then; the machine no longer waits for it. A second call returns an error at once.
func (i *Inhibitor) Run(ctx context.Context) error {
	if err := i.guard.Begin(); err != nil {
		return fmt.Errorf("shutdown.Inhibitor: %w", err)
	}
	defer i.guard.End()
	defer i.release()
	p := &process{i: i}
	defer p.end()
	for failures := 1; ; failures++ {
		began := time.Now()
		err := i.watch(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > watchBackoff.Max {
			failures = 1
		}
		i.setWatching(err)
		if sleep.For(ctx, watchBackoff.After(failures)) != nil {
			return nil
		}
	}
}

// watch is one connection to logind. What it has begun goes on without it.
func (i *Inhibitor) watch(ctx context.Context, p *process) error {
	conn, err := login1.Dial(ctx, login1.Options{Socket: i.opts.Socket})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := i.extend(ctx, conn); err != nil {
		return err
	}
	if !i.ShuttingDown() {
		if err := i.inhibit(ctx, conn); err != nil {
			// Logind hands out none while the machine is going down already: then there is what time the others make.
			if is, askErr := conn.PreparingForShutdown(ctx); askErr != nil || !is {
				return err
			}
		}
	}
	i.setWatching(nil)
	var failed error
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	err = conn.Watch(within, func(shutdown bool) {
		if !i.turn(shutdown) {
			return
		}
		if shutdown {
			p.begin(ctx)
			return
		}
		p.end()
		if failed = i.inhibit(ctx, conn); failed != nil {
			cancel()
		}
	})
	return errors.Join(failed, err)
}

// extend makes logind wait long enough.
func (i *Inhibitor) extend(ctx context.Context, conn *login1.Conn) error {
	need := total(i.opts.Periods)
	is, err := conn.InhibitDelayMax(ctx)
	if err != nil || is >= need {
		return err
	}
	if err := login1.WriteInhibitDelay(i.opts.ConfigDir, need+announceTime+flushTime); err != nil {
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
		is, need, either(i.opts.ConfigDir, login1.ConfigDir))
}

func either(a, b string) string {
	if a != "" {
		return filepath.Clean(a)
	}
	return b
}

// inhibit takes an inhibitor in place of the one that there may be.
func (i *Inhibitor) inhibit(ctx context.Context, conn *login1.Conn) error {
	lock, err := conn.Inhibit(ctx, "kubelet", "Pods of the node have to be stopped")
	if err != nil {
		return err
	}
	i.mu.Lock()
	old := i.lock
	i.lock = lock
	i.mu.Unlock()
	if old != nil {
		_ = old.Close() // of a file descriptor, which is gone in any case
	}
	return nil
}

// release lets the machine go down.
func (i *Inhibitor) release() {
	i.mu.Lock()
	lock := i.lock
	i.lock = nil
	i.mu.Unlock()
	if lock != nil {
		_ = lock.Close() // of a file descriptor, which is gone in any case
	}
}

// turn notes whether the machine is shutting down, and reports whether that is new.
func (i *Inhibitor) turn(shutdown bool) bool {
	i.mu.Lock()
	was := i.shutdown
	i.shutdown = shutdown
	i.mu.Unlock()
	if was == shutdown {
		return false
	}
	message := eventCanceled
	if shutdown {
		message = eventBegun
	}
	i.opts.Logger.Info("shutdown of the machine", "begun", shutdown)
	if i.opts.Event != nil {
		i.opts.Event(message)
	}
	return true
}

// setWatching notes whether a shutdown would be noticed, and logs what is new.
func (i *Inhibitor) setWatching(err error) {
	i.mu.Lock()
	was := i.watching
	i.watching = err
	i.mu.Unlock()
	switch {
	case err == nil:
		i.opts.Logger.Info("shutdowns of the machine wait for pods")
	case was == nil || was.Error() != err.Error():
		i.opts.Logger.Error("shutdowns of the machine do not wait for pods", "error", err)
		i.failed(err)
	}
}

func (i *Inhibitor) failed(err error) {
	if i.opts.Hooks.Error != nil {
		i.opts.Hooks.Error(err)
	}
}
