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

// preStop is a running preStop hook. It runs in its own goroutine, because the container is stopped at the end of the grace
// period even if the hook still runs.
type preStop struct {
	cancel  context.CancelFunc
	done    chan struct{} // closed when the hook has returned
	running sync.WaitGroup
}

// startPreStop starts the preStop hook of a container in a goroutine. The caller must call cancelAndWait.
func (s *stopper) startPreStop(ctx context.Context, call hook.Call, kill plan.Kill) *preStop {
	hookCtx, cancel := context.WithTimeout(ctx, kill.Grace+hook.MinimumGrace)
	p := &preStop{cancel: cancel, done: make(chan struct{})}
	p.running.Go(func() {
		defer close(p.done)
		if err := s.hooks.runHook(hookCtx, call, kill.PreStop); err != nil && ctx.Err() == nil {
			s.reportPreStopFailure(call, err)
		}
	})
	return p
}

// awaitReturn waits until the hook has returned or deadline fires. It returns how long it has waited.
func (p *preStop) awaitReturn(deadline *time.Timer) time.Duration {
	began := time.Now()
	waitUntil(p.done, deadline)
	return time.Since(began)
}

// cancelAndWait cancels the hook and waits until it has returned. It is called after the container has stopped.
func (p *preStop) cancelAndWait() {
	p.cancel()
	p.running.Wait()
}

// reportPreStopFailure logs the error of a preStop hook, and records a warning event without its output and exit code.
func (s *stopper) reportPreStopFailure(call hook.Call, err error) {
	args := []any{"container", call.Container.Name, "id", call.ContainerID, "attempt", call.Attempt, "error", err}
	if exit, ok := errors.AsType[*hook.ExitError](err); ok {
		args = append(args, "exitCode", exit.Code)
	}
	s.reporter.Warn("run preStop hook", args...)
	s.reporter.RecordWarning(podevents.ReasonFailedPreStopHook, subjectOfCall(call), hook.MessageFailedPreStopHook)
}
