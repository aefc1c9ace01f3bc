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

// slowAfter is how long a flight takes up one of Options.Parallel. It is a little longer than the default timeout, so that most
// probes that time out need no second look.
const slowAfter = 1100 * time.Millisecond

const (
	// totalFactor times Options.Parallel is how many probers may be called at the same time, slow ones included.
	totalFactor = 4
	// reservedFlights is how many probers of a pod may be called even when there are as many in all as may be.
	reservedFlights = 4
)

// phase is how a flight counts.
type phase uint8

const (
	inFlight  phase = iota // it takes up one of Options.Parallel
	slow                   // in flight for [slowAfter]
	hung                   // its prober has not returned [hungAfter] after its timeout
	cancelled              // its container is gone, or is not to be probed any more
)

// flight is a probe that is being made: up to [maxAttempts] calls of the prober, one after the other.
type flight struct {
	entry       *entry
	containerID string // of the container that is probed
	prober      Prober
	begun       time.Time
	attempts    int
	phase       phase
	deadline    time.Time // when the present attempt has hung
	cancel      context.CancelFunc
}

// nextCheck returns when the phase of a flight changes if its prober has not returned; zero: it does not.
func (f *flight) nextCheck() time.Time {
	switch slowAt := f.begun.Add(slowAfter); {
	case f.phase == inFlight && slowAt.Before(f.deadline):
		return slowAt
	case f.phase <= slow:
		return f.deadline
	}
	return time.Time{}
}

// answer is what an attempt came to.
type answer struct {
	flight *flight
	result Result
	err    error
}

// launchWaiting starts entries that are due, one of each pod in turn, as far as the limits allow.
func (l *loop) launchWaiting(ctx context.Context, now time.Time) {
	for l.status.InFlight < l.set.opts.Parallel {
		e := l.queue.pop(l.mayStart)
		if e == nil {
			return
		}
		if wait := now.Sub(e.since); wait > 0 {
			l.status.Delayed++
			if l.set.opts.Hooks.Delayed != nil {
				l.set.opts.Hooks.Delayed(e.state.target.Key, wait)
			}
		}
		e.state = e.state.Begin(now)
		t := &e.state.target
		e.flight = &flight{entry: e, containerID: t.ContainerID, prober: t.Prober, begun: now}
		l.closers.retain(closerOf(t.Prober))
		l.status.InFlight++
		e.pod.flights++
		l.flights++
		l.attempt(ctx, e.flight)
	}
}

// mayStart reports whether a pod may have one more probe in flight. What a pod's probes hold, goroutines, memory and
// connections, they hold for as long as their timeouts, which the pod sets.
func (l *loop) mayStart(p *pod) bool {
	return p.flights < l.set.opts.PodParallel && (l.flights < totalFactor*l.set.opts.Parallel || p.flights < reservedFlights)
}

// setPhase changes how a flight counts in the status. A hung flight is counted until its prober returns.
func (l *loop) setPhase(f *flight, next phase) {
	l.count(f.phase, -1)
	l.count(next, 1)
	f.phase = next
}

func (l *loop) count(p phase, n int) {
	switch p {
	case inFlight:
		l.status.InFlight += n
	case slow:
		l.status.Slow += n
	case hung:
		l.status.Hung += n
	case cancelled:
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
	if f.phase <= slow {
		if a.err != nil && f.attempts < maxAttempts {
			l.attempt(ctx, f)
			return
		}
		if a.err == nil {
			l.change(e, e.state.Answer(a.result.Outcome))
		}
		l.probed(f, a)
	}
	l.count(f.phase, -1)
	l.flights--
	e.pod.flights--
	l.closers.release(closerOf(f.prober))
	if e.flight == f {
		e.flight = nil
		l.reschedule(e)
	}
	l.removeIfEmpty(e.pod)
}

// checkFlight makes the flight of an entry slow or hung, whichever it has become.
func (l *loop) checkFlight(e *entry, now time.Time) {
	if now.Before(e.flight.deadline) {
		l.setPhase(e.flight, slow)
		l.reschedule(e)
		return
	}
	l.giveUpFlight(e.flight)
}

// giveUpFlight ignores the result of a flight from now on and no longer counts it against Options.Parallel. Its entry keeps
// it, so that a prober that does not return is not called a second time.
func (l *loop) giveUpFlight(f *flight) {
	l.setPhase(f, hung)
	l.probed(f, answer{err: ErrHung})
}

// cancelFlight ends the flight of an entry whose container is gone or is not to be probed any more.
func (l *loop) cancelFlight(e *entry) {
	e.flight.cancel()
	if e.flight.phase != hung {
		l.setPhase(e.flight, cancelled)
	}
	e.flight = nil
}

// probed reports what a probe came to.
func (l *loop) probed(f *flight, a answer) {
	k, took := f.entry.state.target.Key, time.Since(f.begun)
	switch {
	case a.err != nil:
		l.set.opts.Logger.Warn("probe errored", slog.Any("probe", k), slog.Any("error", a.err))
	case a.result.Outcome != Success:
		l.set.opts.Logger.Debug("probe did not succeed", slog.Any("probe", k), slog.Any("outcome", a.result.Outcome),
			slog.String("output", a.result.Output))
	}
	if l.set.opts.Hooks.Probed != nil {
		l.set.opts.Hooks.Probed(k, a.result, a.err, took)
	}
}
