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

// stateFile has when the last shutdown began and ended, as the kubelet writes it.
const stateFile = "graceful_node_shutdown_state"

// leastTime is for asking that pods be stopped, also in a group that has no time to wait for them.
const leastTime = time.Second

// state is its content.
type state struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// process is what is done for one shutdown. Its methods are called by Run alone.
type process struct {
	i      *Inhibitor
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// begin stops the pods, on a goroutine that end waits for.
func (p *process) begin(ctx context.Context) {
	p.end()
	ctx, p.cancel = context.WithCancel(ctx)
	p.done.Go(func() { p.i.shutDown(ctx) })
}

// end stops no further group.
func (p *process) end() {
	if p.cancel != nil {
		p.cancel()
	}
	p.done.Wait()
}

// shutDown does what has to be done before the machine may go down, and then lets it.
func (i *Inhibitor) shutDown(ctx context.Context) {
	begun := time.Now()
	i.store(state{StartTime: begun})
	if i.opts.Hooks.ShutdownStarted != nil {
		i.opts.Hooks.ShutdownStarted(begun)
	}
	i.within(ctx, announceTime, "show the node as not ready", i.opts.ReportNotReady)
	for _, g := range Groups(i.opts.Periods, i.opts.Pods()) {
		if ctx.Err() != nil {
			break
		}
		if len(g.Pods) > 0 {
			i.stop(ctx, g)
		}
	}
	i.within(ctx, flushTime, "send the statuses of pods", i.opts.FlushStatuses)
	if ctx.Err() != nil {
		return // it was canceled, or the program ends: Run knows what to do with the inhibitor
	}
	ended := time.Now()
	i.store(state{StartTime: begun, EndTime: ended})
	if i.opts.Hooks.ShutdownCompleted != nil {
		i.opts.Hooks.ShutdownCompleted(ended)
	}
	i.release()
}

// within calls a function that has a time.
func (i *Inhibitor) within(ctx context.Context, d time.Duration, what string, fn func(context.Context) error) {
	if fn == nil || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if err := fn(ctx); err != nil {
		i.complain(fmt.Errorf("%s: %w", what, err))
	}
}

// stop stops the pods of a group, and returns when they and their volumes are gone, or its time is over.
func (i *Inhibitor) stop(ctx context.Context, g Group) {
	i.opts.Logger.Info("stop pods", "pods", len(g.Pods), "priority", g.Priority, "gracePeriod", g.GracePeriod)
	ctx, cancel := context.WithTimeout(ctx, max(g.GracePeriod, leastTime))
	defer cancel()
	var pods sync.WaitGroup
	for _, pod := range g.Pods {
		pods.Go(func() {
			if err := i.opts.Stop(ctx, pod, g.Grace(pod)); err != nil {
				i.complain(fmt.Errorf("stop pod %s: %w", nameOf(pod), err))
			}
		})
	}
	pods.Wait()
	if i.opts.AwaitUnmount == nil || ctx.Err() != nil {
		return
	}
	if err := i.opts.AwaitUnmount(ctx, g.Pods); err != nil {
		i.complain(fmt.Errorf("unmount volumes of %d pods of priority %d: %w", len(g.Pods), g.Priority, err))
	}
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (i *Inhibitor) complain(err error) {
	i.opts.Logger.Warn("shutdown of the machine", "error", err)
	i.failed(err)
}

// store writes the state, for those who look at it after the machine has come up again.
func (i *Inhibitor) store(s state) {
	if i.opts.StateDir == "" {
		return
	}
	data, err := json.Marshal(s)
	if err == nil {
		err = atomicfile.WriteFile(filepath.Join(i.opts.StateDir, stateFile), data, 0o644)
	}
	if err != nil {
		i.complain(fmt.Errorf("write state of shutdown: %w", err))
	}
}
