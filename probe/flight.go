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

// slowAfter is the time after which a flight (a running probe) no longer counts against Options.Parallel. It slightly exceeds the
// default timeout of 1 s, so that most probes that time out end before.
const slowAfter = 1100 * time.Millisecond

const (
	// totalFactor times Options.Parallel is the maximum number of running prober calls, including slow ones.
	totalFactor = 4
	// reservedFlights is the number of prober calls that a pod may run even if the total maximum is reached.
	reservedFlights = 4
)

// flightPhase is how a running probe is counted in the Status.
type flightPhase uint8

const (
	inFlight  flightPhase = iota // counts against Options.Parallel
	slow                         // running for [slowAfter]
	hung                         // its prober has not returned [hungAfter] after its timeout
	cancelled                    // its container has terminated, or must not be probed any more
)

// flight is a running probe: up to [maxAttempts] calls of the prober, one after the other.
type flight struct {
	entry       *entry
	containerID string // instance that is probed
	prober      Prober
	started     time.Time
	attempts    int
	phase       flightPhase
	deadline    time.Time // when the current attempt counts as hung
	cancel      context.CancelFunc
}

// nextCheck returns when the flight becomes slow or hung unless its prober returns before. Zero: its phase does not change any
// more.
func (f *flight) nextCheck() time.Time {
	switch slowAt := f.started.Add(slowAfter); {
	case f.phase == inFlight && slowAt.Before(f.deadline):
		return slowAt
	case f.phase <= slow:
		return f.deadline
	}
	return time.Time{}
}

// attemptResult is the result of one prober call.
type attemptResult struct {
	flight *flight
	result Result
	err    error
}

// startWaitingProbes starts due probes, one of each pod in turn, until the limits are reached.
func (l *loop) startWaitingProbes(ctx context.Context, now time.Time) {
	for l.status.InFlight < l.set.opts.Parallel {
		e := l.queue.takeNext(l.hasCapacity)
		if e == nil {
			return
		}
		if wait := now.Sub(e.waitingSince); wait > 0 {
			l.status.Delayed++
			if l.set.opts.Hooks.ProbeDelayed != nil {
				l.set.opts.Hooks.ProbeDelayed(e.state.target.Key, wait)
			}
		}
		e.state = e.state.StartProbe(now)
		t := &e.state.target
		e.flight = &flight{entry: e, containerID: t.ContainerID, prober: t.Prober, started: now}
		l.closers.retainProber(proberCloser(t.Prober))
		l.status.InFlight++
		e.pod.flights++
		l.flights++
		l.startAttempt(ctx, e.flight)
	}
}

// hasCapacity reports whether pod p may run one more probe. The number is limited because running probes hold goroutines, memory
// and connections for as long as the timeouts that the pod itself sets.
func (l *loop) hasCapacity(p *pod) bool {
	return p.flights < l.set.opts.PodParallel && (l.flights < totalFactor*l.set.opts.Parallel || p.flights < reservedFlights)
}

// setPhase changes the phase in which a flight is counted in the status. A hung flight is counted until its prober returns.
func (l *loop) setPhase(f *flight, next flightPhase) {
	l.addToStatus(f.phase, -1)
	l.addToStatus(next, 1)
	f.phase = next
}

func (l *loop) addToStatus(p flightPhase, n int) {
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

// startAttempt calls the prober of a flight in a goroutine.
func (l *loop) startAttempt(ctx context.Context, f *flight) {
	timeout := f.entry.state.target.Spec.Timeout
	f.attempts++
	f.deadline = time.Now().Add(timeout + hungAfter)
	attemptCtx, cancel := context.WithTimeout(ctx, timeout)
	f.cancel = cancel
	l.wg.Go(func() {
		defer cancel()
		a := attemptResult{flight: f}
		a.result, a.err = f.prober.Probe(attemptCtx)
		select {
		case l.results <- a:
		case <-ctx.Done():
		}
	})
	l.reschedule(f.entry)
}

// applyResult handles the return of a prober call: it repeats the call after an error, or applies the result to the state of the
// probe.
func (l *loop) applyResult(ctx context.Context, a attemptResult) {
	f := a.flight
	e := f.entry
	if f.phase <= slow {
		if a.err != nil && f.attempts < maxAttempts {
			l.startAttempt(ctx, f)
			return
		}
		if a.err == nil {
			l.setState(e, e.state.AddResult(a.result.Outcome))
		}
		l.reportProbe(f, a)
	}
	l.addToStatus(f.phase, -1)
	l.flights--
	e.pod.flights--
	l.closers.releaseProber(proberCloser(f.prober))
	if e.flight == f {
		e.flight = nil
		l.reschedule(e)
	}
	l.removeIfEmpty(e.pod)
}

// updateFlightPhase marks the flight of an entry as slow, or gives it up as hung.
func (l *loop) updateFlightPhase(e *entry, now time.Time) {
	if now.Before(e.flight.deadline) {
		l.setPhase(e.flight, slow)
		l.reschedule(e)
		return
	}
	l.giveUpFlight(e.flight)
}

// giveUpFlight ignores the result of a running probe and no longer counts it against Options.Parallel. The entry keeps the
// flight, so that a prober that does not return is not called a second time.
func (l *loop) giveUpFlight(f *flight) {
	l.setPhase(f, hung)
	l.reportProbe(f, attemptResult{err: ErrHung})
}

// cancelFlight cancels the running probe of an entry whose container has terminated or must not be probed any more.
func (l *loop) cancelFlight(e *entry) {
	e.flight.cancel()
	if e.flight.phase != hung {
		l.setPhase(e.flight, cancelled)
	}
	e.flight = nil
}

// reportProbe logs the result of a probe and calls Hooks.ProbeFinished.
func (l *loop) reportProbe(f *flight, a attemptResult) {
	k, took := f.entry.state.target.Key, time.Since(f.started)
	switch {
	case a.err != nil:
		l.set.opts.Logger.Warn("probe errored", slog.Any("probe", k), slog.Any("error", a.err))
	case a.result.Outcome != Success:
		l.set.opts.Logger.Debug("probe did not succeed", slog.Any("probe", k), slog.Any("outcome", a.result.Outcome),
			slog.String("output", a.result.Output))
	}
	if l.set.opts.Hooks.ProbeFinished != nil {
		l.set.opts.Hooks.ProbeFinished(k, a.result, a.err, took)
	}
}
