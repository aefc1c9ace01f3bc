// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// signalsTimeout and candidatesTimeout are how long an observer may take.
	signalsTimeout    = 5 * time.Second
	candidatesTimeout = 10 * time.Second
	// limitTimeout is how long a limit on memory, or a kill, may take.
	limitTimeout = 5 * time.Second
)

// result is what became of something that was begun. Run calls it.
type result func(State) State

// runner is the state of one [Evictor.Run], whose goroutine alone changes it: other goroutines send a [result].
type runner struct {
	evictor *Evictor
	wg      *sync.WaitGroup
	results chan result

	state   State
	signals question[Observation]
	last    *observed // nil: what comes next needs a new one
	pods    measurement
	answers chan measured
	busy    [places]bool         // with a Reclaim that has not returned
	fails   int                  // passes in a row that observed nothing
	logged  map[string]time.Time // when an error of each source was logged last
	stuck   map[Signal]bool      // a missing victim was reported, and a threshold has been met ever since
}

// pass observes once, decides, begins what was decided, and returns when to do so again.
func (r *runner) pass(ctx context.Context) time.Time {
	r.last = nil
	o, err := r.signals.ask(ctx, r.wg, signalsTimeout, r.evictor.observer.Signals)
	o.Candidates, o.Measured, o.Measuring = nil, false, false
	now := time.Now()
	if err != nil {
		r.fail("signals", fmt.Errorf("read signals: %w", err))
		if len(o.Readings) == 0 {
			r.pods.answer = nil
			return r.skip(now, err)
		}
	}
	r.fails = 0
	if r.evictor.hooks.Observed != nil {
		r.evictor.hooks.Observed(o)
	}
	r.last = &observed{o, now, err}
	return r.decide(ctx)
}

// decide decides about the last observation, with what is known of the pods, and begins what was decided.
func (r *runner) decide(ctx context.Context) time.Time {
	o, now, err := r.last.Observation, r.last.now, r.last.err
	d := r.evictor.policy.Decide(r.state, o, now)
	if d.NeedsCandidates {
		if notMeasured := r.measure(ctx, &o); notMeasured != nil {
			r.fail("pods", fmt.Errorf("measure pods: %w", notMeasured))
			err = errors.Join(err, notMeasured)
		}
		d = r.evictor.policy.Decide(r.state, o, now)
	}
	r.pods.answer = nil
	r.state = d.State
	r.publish(o, d, now, err)
	r.act(ctx, o, d, now)
	return d.Wake
}

// skip is a pass that knows nothing. What is known stays.
func (r *runner) skip(now time.Time, err error) time.Time {
	r.evictor.mu.Lock()
	r.evictor.status.Err = err
	r.evictor.mu.Unlock()
	wait := min(time.Second<<min(r.fails, 4), maxPeriod)
	r.fails++
	return now.Add(wait)
}

// remindAfter is when what still cannot be measured is logged again.
const remindAfter = time.Minute

// fail reports what could not be measured. The log has one error of each source in a minute, because the next one may differ in
// nothing but a number.
func (r *runner) fail(source string, err error) {
	if last, ok := r.logged[source]; !ok || time.Since(last) >= remindAfter {
		r.evictor.log.Warn("observe node", "error", err)
		r.logged[source] = time.Now()
	}
	if r.evictor.hooks.Error != nil {
		r.evictor.hooks.Error(err)
	}
}

// publish makes known what was decided.
func (r *runner) publish(o Observation, d Decision, now time.Time, err error) {
	s := Status{Conditions: d.Conditions, Readings: o.Readings, Time: now, Err: errors.Join(append(d.Problems, err)...)}
	for _, m := range d.State.met {
		s.Met = append(s.Met, m.Threshold)
	}
	for _, v := range d.State.victims {
		s.Evicting = append(s.Evicting, v.uid)
	}
	changed := r.evictor.set(s)
	for _, problem := range d.Problems {
		source := "reading"
		if e, ok := errors.AsType[*readingError](problem); ok {
			source += " " + string(e.signal)
		}
		r.fail(source, problem)
	}
	if changed {
		r.evictor.log.Info("node conditions", "conditions", d.Conditions)
		if r.evictor.hooks.ConditionsChanged != nil {
			r.evictor.hooks.ConditionsChanged(d.Conditions)
		}
	}
}

// reportNoVictim reports once that no pod can be evicted although a threshold is met.
func (r *runner) reportNoVictim(d *Decision) {
	if len(d.State.met) == 0 {
		clear(r.stuck)
	}
	if n := d.NoVictim; n.Signal != "" && !r.stuck[n.Signal] {
		r.stuck[n.Signal] = true
		r.evictor.log.Warn("no pod can be evicted: all are critical, as static pods are, or are being evicted already",
			"signal", n.Signal, "pods", n.Pods, "critical", n.Critical)
		if r.evictor.hooks.NoVictim != nil {
			r.evictor.hooks.NoVictim(n)
		}
	}
}

// act begins what was decided.
func (r *runner) act(ctx context.Context, o Observation, d Decision, now time.Time) {
	r.reportNoVictim(&d)
	if d.Reclaim != nil || d.StarvedSignal != "" && len(d.Evict) > 0 {
		r.evictor.log.Warn("attempt to reclaim", "resource", d.StarvedSignal.Resource(), "signal", d.StarvedSignal)
		if r.evictor.hooks.ThresholdMet != nil {
			r.evictor.hooks.ThresholdMet(d.StarvedSignal, age(o, d.StarvedSignal, now))
		}
	}
	if d.Reclaim != nil {
		r.beginReclaim(ctx, *d.Reclaim)
	}
	for _, e := range d.Evict {
		r.evictor.log.Warn("evict pod", "pod", e.Name, "uid", e.UID, "signal", e.Signal, "message", e.Message)
		if r.evictor.hooks.Evicting != nil {
			r.evictor.hooks.Evicting(e)
		}
		r.wg.Go(func() { r.evict(ctx, e) })
	}
	for _, uid := range d.Kill {
		r.wg.Go(func() {
			if r.kill(ctx, uid) {
				r.unblock(ctx, uid)
			}
		})
	}
}

// age returns how old the reading of a signal is.
func age(o Observation, s Signal, now time.Time) time.Duration {
	for _, r := range o.Readings {
		if r.Signal == s && !r.Time.IsZero() {
			return max(now.Sub(r.Time), 0)
		}
	}
	return 0
}

// beginReclaim begins a reclaim, unless the one before has not returned: then this one has ended, without anything.
func (r *runner) beginReclaim(ctx context.Context, what Reclaim) {
	now := time.Now()
	if r.busy[what.Signal.place()] {
		r.reportReclaim(what, 0, errHangs)
		r.state = r.state.Reclaimed(what, 0, now)
		return
	}
	r.busy[what.Signal.place()] = true
	r.state, what = r.state.started(what, now)
	r.wg.Go(func() { r.reclaim(ctx, what) })
}

// reclaim has something made free.
func (r *runner) reclaim(ctx context.Context, what Reclaim) {
	timeout := reclaimTimeout
	if what.Kind == ReclaimCache {
		timeout = cacheTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	freed, err := r.evictor.actor.Reclaim(limited, what)
	r.reportReclaim(what, freed, err)
	r.send(ctx, func(s State) State {
		r.busy[what.Signal.place()] = false
		return s.Reclaimed(what, freed, time.Now())
	})
}

// reportReclaim makes known what came of a reclaim.
func (r *runner) reportReclaim(what Reclaim, freed int64, err error) {
	if err != nil {
		r.evictor.log.Warn("reclaim", "signal", what.Signal, "error", err)
	}
	if r.evictor.hooks.Reclaimed != nil {
		r.evictor.hooks.Reclaimed(what, freed, err)
	}
}

// evict has a pod ended.
func (r *runner) evict(ctx context.Context, e Eviction) {
	killAfter := max(10*time.Second, e.Grace+e.Grace/2)
	limited, cancel := context.WithTimeout(ctx, killAfter+cleanupTimeout)
	defer cancel()
	var beside sync.WaitGroup
	defer beside.Wait()
	gone := make(chan struct{})
	if e.Urgent {
		beside.Go(func() { r.limit(limited, e) })
		killAfter = e.Grace
	}
	beside.Go(func() { r.killLate(limited, e, killAfter, gone) })
	err := r.evictor.actor.Evict(limited, e)
	close(gone)
	if err != nil {
		r.evictor.log.Warn("evict pod", "pod", e.Name, "uid", e.UID, "error", err)
	}
	if r.evictor.hooks.Evicted != nil {
		r.evictor.hooks.Evicted(e, err)
	}
	again := retryAfter
	if limited.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		again = forgetAfter
	}
	r.send(ctx, func(s State) State {
		if err != nil {
			return s.unblocked(e.UID, time.Now().Add(again))
		}
		r.pods.outdate()
		return s.Evicted(e.UID)
	})
}

// limit keeps a pod from using more memory than it has.
func (r *runner) limit(ctx context.Context, e Eviction) {
	if r.evictor.limiter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := r.evictor.limiter.LimitMemory(ctx, e.UID); err != nil {
		r.evictor.log.Warn("limit memory of pod", "pod", e.Name, "uid", e.UID, "error", err)
	}
}

// killLate kills a pod that is not gone after some time.
func (r *runner) killLate(ctx context.Context, e Eviction, after time.Duration, gone <-chan struct{}) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-gone:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
		if r.kill(ctx, e.UID) && e.Urgent { // else what it has on disks is still there: it has until its deadline
			r.unblock(ctx, e.UID)
		}
	}
}

// kill ends the processes of a pod without the runtime, and reports whether that was done.
func (r *runner) kill(ctx context.Context, uid string) bool {
	if r.evictor.killer == nil {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := r.evictor.killer.Kill(limited, uid); err != nil {
		r.evictor.log.Warn("kill pod", "uid", uid, "error", err)
		return false
	}
	return true
}

// unblock lets another pod be evicted although one that was killed is not gone.
func (r *runner) unblock(ctx context.Context, uid string) {
	r.send(ctx, func(s State) State { return s.unblocked(uid, time.Now().Add(forgetAfter)) })
}

// send hands a result to Run.
func (r *runner) send(ctx context.Context, f result) {
	select {
	case r.results <- f:
	case <-ctx.Done():
	}
}

// question is a call that may hang: there is one at a time.
type question[T any] struct {
	pending chan struct{} // closed when the last call has returned; nil: there was none
}

// ask calls fn and returns what it returns, or an error after a time.
func (q *question[T]) ask(ctx context.Context, wg *sync.WaitGroup, timeout time.Duration, fn func(context.Context) (T, error)) (value T, err error) {
	if q.pending != nil {
		select {
		case <-q.pending:
		default:
			return value, errHangs
		}
	}
	type answer struct {
		value T
		err   error
	}
	answers, returned := make(chan answer, 1), make(chan struct{})
	limited, cancel := context.WithTimeout(ctx, timeout)
	wg.Go(func() {
		defer cancel()
		defer close(returned)
		v, err := fn(limited)
		answers <- answer{v, err}
	})
	q.pending = returned
	select {
	case a := <-answers:
		return a.value, a.err
	case <-limited.Done():
	}
	select { // it may have returned because its time was up
	case a := <-answers:
		return a.value, a.err
	case <-time.After(grantedLate):
		return value, fmt.Errorf("no answer after %s: %w", timeout, context.Cause(limited))
	}
}

// grantedLate is how long a call has to return after its context has ended.
const grantedLate = 100 * time.Millisecond

var errHangs = errors.New("the call before has not returned although its context has ended")
