// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shutdown

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// stateFile is the name of the file with the start and end time of the last shutdown. Its format is that of the kubelet.
const stateFile = "graceful_node_shutdown_state"

// minGroupTime is the shortest time for stopping a group. Even with a grace period of zero, the pods receive a termination
// signal.
const minGroupTime = time.Second

// state is the content of the state file: the time of the last shutdown.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// podStopper runs the shutdown procedure of an Inhibitor. Only Run calls its methods.
type podStopper struct {
	inhibitor *Inhibitor
	cancel    context.CancelFunc
	done      sync.WaitGroup
}

// start starts the shutdown procedure on a new goroutine. If a procedure is running, it first cancels it and waits until it
// has returned.
func (p *podStopper) start(ctx context.Context) {
	p.cancelAndWait()
	ctx, p.cancel = context.WithCancel(ctx)
	p.done.Go(func() { p.inhibitor.shutDown(ctx) })
}

// cancelAndWait cancels the running shutdown procedure, if there is one. It waits until the procedure has returned.
func (p *podStopper) cancelAndWait() {
	if p.cancel != nil {
		p.cancel()
	}
	p.done.Wait()
}

// shutDown reports the node as not ready, stops the pods of each group in turn, and flushes their statuses. Without the
// inhibitor, logind then shuts down.
func (i *Inhibitor) shutDown(ctx context.Context) {
	begun := time.Now()
	i.writeState(state{StartTime: begun})
	if i.opts.Hooks.ShutdownStarted != nil {
		i.opts.Hooks.ShutdownStarted(begun)
	}
	i.callWithTimeout(ctx, notReadyTimeout, "show the node as not ready", i.opts.ReportNotReady)
	for _, g := range Groups(i.opts.Periods, i.opts.Pods()) {
		if ctx.Err() != nil {
			break
		}
		if len(g.Pods) > 0 {
			i.stopGroup(ctx, g)
		}
	}
	i.callWithTimeout(ctx, flushTimeout, "send the statuses of pods", i.opts.FlushStatuses)
	if ctx.Err() != nil {
		return // canceled, or the program stops: Run handles the inhibitor
	}
	ended := time.Now()
	i.writeState(state{StartTime: begun, EndTime: ended})
	if i.opts.Hooks.ShutdownCompleted != nil {
		i.opts.Hooks.ShutdownCompleted(ended)
	}
	i.releaseInhibitor()
}

// callWithTimeout calls fn, unless it is nil or ctx has ended, with a timeout. It reports an error with the prefix action.
func (i *Inhibitor) callWithTimeout(ctx context.Context, timeout time.Duration, action string, fn func(context.Context) error) {
	if fn == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := fn(ctx); err != nil {
		i.reportError(fmt.Errorf("%s: %w", action, err))
	}
}

// stopGroup stops all pods of group concurrently. It returns when their volumes are unmounted, or after the GracePeriod of
// the group, but not before minGroupTime.
func (i *Inhibitor) stopGroup(ctx context.Context, group Group) {
	i.opts.Logger.Info("stop pods", "pods", len(group.Pods), "priority", group.Priority, "gracePeriod", group.GracePeriod)
	ctx, cancel := context.WithTimeout(ctx, max(group.GracePeriod, minGroupTime))
	defer cancel()
	var pods sync.WaitGroup
	for _, pod := range group.Pods {
		pods.Go(func() {
			if err := i.opts.Stop(ctx, pod, group.Grace(pod)); err != nil {
				i.reportError(fmt.Errorf("stop pod %s: %w", podName(pod), err))
			}
		})
	}
	pods.Wait()
	if i.opts.AwaitUnmount == nil || ctx.Err() != nil {
		return
	}
	if err := i.opts.AwaitUnmount(ctx, group.Pods); err != nil {
		i.reportError(fmt.Errorf("unmount volumes of %d pods of priority %d: %w", len(group.Pods), group.Priority, err))
	}
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (i *Inhibitor) reportError(err error) {
	i.opts.Logger.Warn("shutdown of the machine", "error", err)
	i.callErrorHook(err)
}

// writeState writes s to the state file in Options.StateDir, for inspection after the reboot.
func (i *Inhibitor) writeState(s state) {
	if i.opts.StateDir == "" {
		return
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.WriteFile(filepath.Join(i.opts.StateDir, stateFile), data, 0o644)
	}
	if err != nil {
		i.reportError(fmt.Errorf("write state of shutdown: %w", err))
	}
}
