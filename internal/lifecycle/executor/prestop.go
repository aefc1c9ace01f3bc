// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
)

// preStop is the preStop hook of a container that is being stopped. It runs beside the stop.
type preStop struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when the hook has returned
	running sync.WaitGroup
}

// startPreStop starts the preStop hook of k, which may run for the grace period and two seconds. The caller calls end.
func (s *stopper) startPreStop(ctx context.Context, call hook.Call, k plan.Kill) *preStop {
	hookCtx, cancel := context.WithTimeout(ctx, k.Grace+hook.MinimumGrace)
	p := &preStop{cancel: cancel, done: make(chan struct{})}
	p.running.Go(func() {
		defer close(p.done)
		if err := s.hooks.run(hookCtx, call, k.PreStop); err != nil && ctx.Err() == nil {
			s.reportPreStopFailure(call, err)
		}
	})
	return p
}

// wait waits until the hook has returned, at most until deadline, and returns how long it has waited.
func (p *preStop) wait(deadline *time.Timer) time.Duration {
	began := time.Now()
	await(p.done, deadline)
	return time.Since(began)
}

// end cancels the hook, and waits until it has returned: a late hook may run beside the stop of its container, not after it.
func (p *preStop) end() {
	p.cancel()
	p.running.Wait()
}

// reportPreStopFailure reports a preStop hook that failed. Its output and its exit code go to the log alone.
func (s *stopper) reportPreStopFailure(c hook.Call, err error) {
	args := []any{"container", c.Container.Name, "id", c.ContainerID, "attempt", c.Attempt, "error", err}
	if exit, ok := errors.AsType[*hook.ExitError](err); ok {
		args = append(args, "exitCode", exit.Code)
	}
	s.reporter.Warn("preStop hook", args...)
	s.reporter.RecordWarning(podevents.ReasonFailedPreStopHook, subjectOfCall(c), hook.MessageFailedPreStopHook)
}
