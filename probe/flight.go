// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrHung is the error of a probe whose prober has not returned a second after its context ended.
var ErrHung = errors.New("prober does not return")

// flight is a probe that is being made: up to [maxAttempts] calls of the prober, one after the other.
type flight struct {
	entry       *entry
	containerID string // of the container that is probed
	prober      Prober
	begun       time.Time
	attempts    int
	deadline    time.Time // when the present attempt has hung; zero: it has
	cancel      context.CancelFunc
}

// answer is what an attempt came to.
type answer struct {
	flight *flight
	result Result
	err    error
}

// launchWaiting starts what is due, as far as the limit allows.
func (l *loop) launchWaiting(ctx context.Context, now time.Time) {
	for l.status.InFlight < l.opts.Parallel && l.queue.Len() > 0 {
		e, _ := l.queue.Remove(l.queue.Front()).(*entry)
		e.waiting = nil
		if wait := now.Sub(e.since); wait > 0 {
			l.status.Delayed++
			if l.opts.Hooks.Delayed != nil {
				l.opts.Hooks.Delayed(e.state.target.Key, wait)
			}
		}
		e.state = e.state.Begin(now)
		t := &e.state.target
		e.flight = &flight{entry: e, containerID: t.ContainerID, prober: t.Prober, begun: now}
		l.closers.retain(closerOf(t.Prober))
		l.status.InFlight++
		l.attempt(ctx, e.flight)
	}
}

// attempt calls the prober of a flight in a goroutine of its own.
func (l *loop) attempt(ctx context.Context, f *flight) {
	timeout := f.entry.state.target.Spec.Timeout
	f.attempts++
	f.deadline = time.Now().Add(timeout + hungAfter)
	attemptCtx, cancel := context.WithTimeout(ctx, timeout)
	f.cancel = cancel
	l.wg.Go(func() {
		defer cancel()
		a := answer{flight: f}
		a.result, a.err = f.prober.Probe(attemptCtx)
		select {
		case l.answers <- a:
		case <-ctx.Done():
		}
	})
	l.reschedule(f.entry)
}

// answered takes what an attempt came to.
func (l *loop) answered(ctx context.Context, a answer) {
	f := a.flight
	e := f.entry
	switch hung := f.deadline.IsZero(); {
	case hung:
		l.status.Hung--
	case e.flight == f:
		if a.err != nil && f.attempts < maxAttempts {
			l.attempt(ctx, f)
			return
		}
		l.status.InFlight--
		if a.err == nil {
			l.change(e, e.state.Answer(a.result.Outcome))
		}
		l.probed(f, a)
	}
	l.closers.release(closerOf(f.prober))
	if e.flight == f {
		e.flight = nil
		l.reschedule(e)
	}
}

// hung gives up the flight of an entry: its answer no longer counts, and it no longer takes part in the limit. The
// entry keeps it, so that a prober that does not return is not called again.
func (l *loop) hung(e *entry) {
	e.flight.deadline = time.Time{}
	l.status.InFlight--
	l.status.Hung++
	l.probed(e.flight, answer{err: ErrHung})
}

// abandon ends the flight of an entry whose container is gone or is not to be probed any more.
func (l *loop) abandon(e *entry) {
	e.flight.cancel()
	if !e.flight.deadline.IsZero() {
		l.status.InFlight--
	}
	e.flight = nil
}

// probed reports what a probe came to.
func (l *loop) probed(f *flight, a answer) {
	k, took := f.entry.state.target.Key, time.Since(f.begun)
	switch {
	case a.err != nil:
		l.opts.Logger.Warn("probe errored", slog.Any("probe", k), slog.Any("error", a.err))
	case a.result.Outcome != Success:
		l.opts.Logger.Debug("probe did not succeed", slog.Any("probe", k), slog.Any("outcome", a.result.Outcome),
			slog.String("output", a.result.Output))
	}
	if l.opts.Hooks.Probed != nil {
		l.opts.Hooks.Probed(k, a.result, a.err, took)
	}
}
