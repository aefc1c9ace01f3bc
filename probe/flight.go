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

// flight is a running probe: up to [maxAttempts] calls of its prober, one after the other.
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

// nextCheck returns when the running probe becomes slow or hung, or zero if it already is hung or canceled.
func (f *flight) nextCheck() time.Time {
	switch slowAt := f.started.Add(slowAfter); {
	case f.phase == inFlight && slowAt.Before(f.deadline):
		return slowAt
	case f.phase <= slow:
		return f.deadline
	}
	return time.Time{}
}

// attemptResult is the result of one prober call. A probe calls its prober again after an error, up to [maxAttempts] calls in
// all.
type attemptResult struct {
	flight *flight
	result Result
	err    error
}

// startWaitingProbes starts waiting probes until a limit is reached, in turns of one probe per pod.
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

// hasCapacity reports whether one more probe of the pod may run. A pod with long timeouts must not occupy all connections.
func (l *loop) hasCapacity(pod *pod) bool {
	return pod.flights < l.set.opts.PodParallel && (l.flights < totalFactor*l.set.opts.Parallel || pod.flights < reservedFlights)
}

// setPhase changes the phase of a running probe, and the counts in the status. A hung probe is counted as hung until its
// prober returns.
func (l *loop) setPhase(running *flight, next flightPhase) {
	l.addToStatus(running.phase, -1)
	l.addToStatus(next, 1)
	running.phase = next
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

// startAttempt starts a call of the prober in a goroutine. The context of the call has the timeout of the probe.
func (l *loop) startAttempt(ctx context.Context, running *flight) {
	timeout := running.entry.state.target.Spec.Timeout
	running.attempts++
	running.deadline = time.Now().Add(timeout + hungAfter)
	attemptCtx, cancel := context.WithTimeout(ctx, timeout)
	running.cancel = cancel
	l.wg.Go(func() {
		defer cancel()
		a := attemptResult{flight: running}
		a.result, a.err = running.prober.Probe(attemptCtx)
		select {
		case l.results <- a:
		case <-ctx.Done():
		}
	})
	l.reschedule(running.entry)
}

// applyResult updates the state of a probe with the result of a prober call. If the call returned an error, it starts the next
// call instead, up to maxAttempts calls per probe.
func (l *loop) applyResult(ctx context.Context, result attemptResult) {
	f := result.flight
	e := f.entry
	if f.phase <= slow {
		if result.err != nil && f.attempts < maxAttempts {
			l.startAttempt(ctx, f)
			return
		}
		if result.err == nil {
			l.setState(e, e.state.AddResult(result.result.Outcome))
		}
		l.reportProbe(f, result)
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

// updateFlightPhase is called when a running probe is due for a check. It marks the probe as slow, or gives the probe up as
// hung if the deadline of its prober call has passed.
func (l *loop) updateFlightPhase(probe *entry, now time.Time) {
	if now.Before(probe.flight.deadline) {
		l.setPhase(probe.flight, slow)
		l.reschedule(probe)
		return
	}
	l.giveUpFlight(probe.flight)
}

// giveUpFlight marks a running probe as hung: it no longer counts against Options.Parallel, and its result is ignored.
func (l *loop) giveUpFlight(running *flight) {
	l.setPhase(running, hung)
	l.reportProbe(running, attemptResult{err: ErrHung})
}

// cancelFlight cancels the running prober call of a probe. Its container has terminated or must not be probed any more.
func (l *loop) cancelFlight(probe *entry) {
	probe.flight.cancel()
	if probe.flight.phase != hung {
		l.setPhase(probe.flight, cancelled)
	}
	probe.flight = nil
}

// reportProbe logs the result of a running probe and calls Hooks.ProbeFinished with it.
func (l *loop) reportProbe(running *flight, result attemptResult) {
	k, took := running.entry.state.target.Key, time.Since(running.started)
	switch {
	case result.err != nil:
		l.set.opts.Logger.Warn("probe errored", slog.Any("probe", k), slog.Any("error", result.err))
	case result.result.Outcome != Success:
		l.set.opts.Logger.Debug("probe did not succeed", slog.Any("probe", k), slog.Any("outcome", result.result.Outcome),
			slog.String("output", result.result.Output))
	}
	if l.set.opts.Hooks.ProbeFinished != nil {
		l.set.opts.Hooks.ProbeFinished(k, result.result, result.err, took)
	}
}
