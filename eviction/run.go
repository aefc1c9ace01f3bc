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
	// signalsTimeout and candidatesTimeout limit the calls of an Observer.
	signalsTimeout    = 5 * time.Second
	candidatesTimeout = 10 * time.Second
	// limitTimeout limits the calls of a MemoryLimiter and a Killer.
	limitTimeout = 5 * time.Second
)

// stateChange updates the state after an action has ended. Run calls it.
type stateChange func(State) State

// runner is the state of one [Evictor.Run]. Only the goroutine of Run changes it: goroutines of actions send it a stateChange. A
// pass is one observation of the node and the decision on it.
type runner struct {
	evictor *Evictor
	wg      *sync.WaitGroup
	results chan stateChange

	state            State
	signals          singleCall[Observation]
	last             *lastObservation // last pass; nil: a new pass is needed
	pods             measurement
	measurements     chan measureResult
	reclaiming       [numReclaims]bool    // resources with a running Reclaim call
	failedPasses     int                  // failed passes in a row
	lastLogged       map[string]time.Time // time of the last log entry by error source
	noVictimReported map[Signal]bool      // signals whose missing victim was reported since a threshold was met
}

// runPass observes the node, decides which actions are necessary, and starts them in goroutines. It returns the time of the
// next observation.
func (r *runner) runPass(ctx context.Context) time.Time {
	r.last = nil
	o, err := r.signals.invoke(ctx, r.wg, signalsTimeout, r.evictor.observer.Signals)
	o.Candidates, o.Measured, o.Measuring = nil, false, false
	now := time.Now()
	if err != nil {
		r.reportError("signals", fmt.Errorf("read signals: %w", err))
		if len(o.Readings) == 0 {
			r.pods.result = nil
			return r.recordFailedPass(now, err)
		}
	}
	r.failedPasses = 0
	if r.evictor.hooks.Observed != nil {
		r.evictor.hooks.Observed(o)
	}
	r.last = &lastObservation{o, now, err}
	return r.decide(ctx)
}

// decide makes a decision for the last observation, starts the actions, and returns when to observe next.
func (r *runner) decide(ctx context.Context) time.Time {
	o, now, err := r.last.observation, r.last.now, r.last.err
	d := r.evictor.policy.Decide(r.state, o, now)
	if d.NeedsCandidates {
		if notMeasured := r.measureCandidates(ctx, &o); notMeasured != nil {
			r.reportError("pods", fmt.Errorf("measure pods: %w", notMeasured))
			err = errors.Join(err, notMeasured)
		}
		d = r.evictor.policy.Decide(r.state, o, now)
	}
	r.pods.result = nil
	r.state = d.State
	r.publishStatus(o, d, now, err)
	r.startActions(ctx, o, d, now)
	return d.Wake
}

// recordFailedPass stores err in the status after an observation without a reading, and returns when to observe next.
func (r *runner) recordFailedPass(now time.Time, err error) time.Time {
	r.evictor.mu.Lock()
	r.evictor.status.Err = err
	r.evictor.mu.Unlock()
	// 1 s, doubling to 10 s
	wait := min(time.Second<<min(r.failedPasses, 4), maxPeriod)
	r.failedPasses++
	return now.Add(wait)
}

// remindAfter is the interval at which a persistent error is logged again.
const remindAfter = time.Minute

// reportError logs err, at most once a minute per source, and calls Hooks.Error.
func (r *runner) reportError(source string, err error) {
	// the texts of repeated errors may differ only in a number
	if last, ok := r.lastLogged[source]; !ok || time.Since(last) >= remindAfter {
		r.evictor.log.Warn("observe node", "error", err)
		r.lastLogged[source] = time.Now()
	}
	if r.evictor.hooks.Error != nil {
		r.evictor.hooks.Error(err)
	}
}

// publishStatus stores the result of a decision for [Evictor.Status], and reports its Problems and changed node conditions.
func (r *runner) publishStatus(observation Observation, decision Decision, now time.Time, err error) {
	s := Status{Conditions: decision.Conditions, Readings: observation.Readings, Time: now, Err: errors.Join(append(decision.Problems, err)...)}
	for _, m := range decision.State.met {
		s.Met = append(s.Met, m.threshold)
	}
	for _, v := range decision.State.victims {
		s.Evicting = append(s.Evicting, v.uid)
	}
	changed := r.evictor.storeStatus(s)
	for _, problem := range decision.Problems {
		source := "reading"
		if e, ok := errors.AsType[*readingError](problem); ok {
			source += " " + string(e.signal)
		}
		r.reportError(source, problem)
	}
	if changed {
		r.evictor.log.Info("node conditions", "conditions", decision.Conditions)
		if r.evictor.hooks.ConditionsChanged != nil {
			r.evictor.hooks.ConditionsChanged(decision.Conditions)
		}
	}
}

// reportNoVictim reports that no pod can be evicted for a threshold, once per signal until no threshold is met.
func (r *runner) reportNoVictim(d *Decision) {
	if len(d.State.met) == 0 {
		clear(r.noVictimReported)
	}
	if n := d.NoVictim; n.Signal != "" && !r.noVictimReported[n.Signal] {
		r.noVictimReported[n.Signal] = true
		r.evictor.log.Warn("no pod can be evicted: all are critical, as static pods are, or are being evicted already",
			"signal", n.Signal, "pods", n.Pods, "critical", n.Critical)
		if r.evictor.hooks.NoVictim != nil {
			r.evictor.hooks.NoVictim(n)
		}
	}
}

// startActions starts the reclaim, the evictions and the kills of the decision in goroutines. It first logs them and calls
// the hooks.
func (r *runner) startActions(ctx context.Context, observation Observation, decision Decision, now time.Time) {
	r.reportNoVictim(&decision)
	if decision.Reclaim != nil || decision.StarvedSignal != "" && len(decision.Evict) > 0 {
		r.evictor.log.Warn("attempt to reclaim", "resource", decision.StarvedSignal.Resource(), "signal", decision.StarvedSignal)
		if r.evictor.hooks.ThresholdMet != nil {
			r.evictor.hooks.ThresholdMet(decision.StarvedSignal, readingAge(observation, decision.StarvedSignal, now))
		}
	}
	if decision.Reclaim != nil {
		r.startReclaim(ctx, *decision.Reclaim)
	}
	for _, e := range decision.Evict {
		r.evictor.log.Warn("evict pod", "pod", e.Name, "uid", e.UID, "signal", e.Signal, "message", e.Message)
		if r.evictor.hooks.Evicting != nil {
			r.evictor.hooks.Evicting(e)
		}
		r.wg.Go(func() { r.runEviction(ctx, e) })
	}
	for _, uid := range decision.Kill {
		r.wg.Go(func() {
			if r.killPod(ctx, uid) {
				r.abandonVictim(ctx, uid)
			}
		})
	}
}

// readingAge returns the age of the reading of this signal. It returns zero if there is no reading or the reading has no
// time.
func readingAge(observation Observation, signal Signal, now time.Time) time.Duration {
	for _, r := range observation.Readings {
		if r.Signal == signal && !r.Time.IsZero() {
			return max(now.Sub(r.Time), 0)
		}
	}
	return 0
}

// startReclaim starts the reclaim in a goroutine, unless a previous reclaim of this resource hangs.
func (r *runner) startReclaim(ctx context.Context, request Reclaim) {
	now := time.Now()
	if r.reclaiming[request.Signal.reclaimIndex()] {
		r.reportReclaim(request, 0, errHangs) // the next decision evicts a pod
		r.state = r.state.Reclaimed(request, 0, now)
		return
	}
	r.reclaiming[request.Signal.reclaimIndex()] = true
	r.state, request = r.state.withReclaimStarted(request, now)
	r.wg.Go(func() { r.runReclaim(ctx, request) })
}

// runReclaim calls Actor.Reclaim. It then sends the result to the goroutine of Run.
func (r *runner) runReclaim(ctx context.Context, request Reclaim) {
	timeout := reclaimTimeout
	if request.Kind == ReclaimCache {
		timeout = cacheTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	freed, err := r.evictor.actor.Reclaim(limited, request)
	r.reportReclaim(request, freed, err)
	r.sendResult(ctx, func(s State) State {
		r.reclaiming[request.Signal.reclaimIndex()] = false
		return s.Reclaimed(request, freed, time.Now())
	})
}

// reportReclaim calls Hooks.Reclaimed with the result of a reclaim. If err is not nil, it also logs err.
func (r *runner) reportReclaim(request Reclaim, freed int64, err error) {
	if err != nil {
		r.evictor.log.Warn("reclaim", "signal", request.Signal, "error", err)
	}
	if r.evictor.hooks.Reclaimed != nil {
		r.evictor.hooks.Reclaimed(request, freed, err)
	}
}

// runEviction calls Actor.Evict and sends the result to Run. A pod that does not terminate in time is killed without the
// runtime.
func (r *runner) runEviction(ctx context.Context, victim Eviction) {
	killAfter := max(10*time.Second, victim.Grace+victim.Grace/2)
	limited, cancel := context.WithTimeout(ctx, killAfter+cleanupTimeout)
	defer cancel()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	ended := make(chan struct{})
	if victim.Urgent {
		helpers.Go(func() { r.limitMemory(limited, victim) })
		killAfter = victim.Grace
	}
	helpers.Go(func() { r.killAfterDelay(limited, victim, killAfter, ended) })
	err := r.evictor.actor.Evict(limited, victim)
	close(ended)
	if err != nil {
		r.evictor.log.Warn("evict pod", "pod", victim.Name, "uid", victim.UID, "error", err)
	}
	if r.evictor.hooks.Evicted != nil {
		r.evictor.hooks.Evicted(victim, err)
	}
	blockFor := retryAfter
	if limited.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
		blockFor = forgetAfter
	}
	r.sendResult(ctx, func(s State) State {
		if err != nil {
			return s.withAbandoned(victim.UID, time.Now().Add(blockFor))
		}
		r.pods.invalidate()
		return s.Evicted(victim.UID)
	})
}

// limitMemory calls the [MemoryLimiter], which keeps the pod from using more memory. It does nothing if there is no
// MemoryLimiter.
func (r *runner) limitMemory(ctx context.Context, victim Eviction) {
	if r.evictor.limiter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limitTimeout)
	defer cancel()
	if err := r.evictor.limiter.LimitMemory(ctx, victim.UID); err != nil {
		r.evictor.log.Warn("limit memory of pod", "pod", victim.Name, "uid", victim.UID, "error", err)
	}
}

// killAfterDelay kills the pod without the runtime after the delay, unless the pod terminates first.
func (r *runner) killAfterDelay(ctx context.Context, victim Eviction, delay time.Duration, terminated <-chan struct{}) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-terminated:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
		if r.killPod(ctx, victim.UID) && victim.Urgent { // a pod evicted for a disk still has its files: wait for its deadline
			r.abandonVictim(ctx, victim.UID)
		}
	}
}

// killPod kills the processes of a pod without the runtime. It returns false if the call fails or there is no [Killer].
func (r *runner) killPod(ctx context.Context, uid string) bool {
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

// abandonVictim records that a killed pod no longer blocks other evictions, although the runtime does not report its
// termination.
func (r *runner) abandonVictim(ctx context.Context, uid string) {
	r.sendResult(ctx, func(s State) State { return s.withAbandoned(uid, time.Now().Add(forgetAfter)) }) // not selected again for 5 min
}

// sendResult sends change to the goroutine of Run, which applies it to the state. If ctx ends first, it returns without
// sending.
func (r *runner) sendResult(ctx context.Context, change stateChange) {
	select {
	case r.results <- change:
	case <-ctx.Done():
	}
}

// singleCall calls a function that may hang. It makes no second call while one is running.
type singleCall[T any] struct {
	pending chan struct{} // closed when the last call has returned; nil: none yet
}

// invoke returns the result of call, or an error if call or the previous call does not return in time. The caller waits for wg.
func (q *singleCall[T]) invoke(ctx context.Context, wg *sync.WaitGroup, timeout time.Duration, call func(context.Context) (T, error)) (value T, err error) {
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
		v, err := call(limited)
		answers <- answer{v, err}
	})
	q.pending = returned
	select {
	case a := <-answers:
		return a.value, a.err
	case <-limited.Done():
	}
	select { // call may have returned because of the timeout
	case a := <-answers:
		return a.value, a.err
	case <-time.After(returnGrace):
		return value, fmt.Errorf("no result after %s: %w", timeout, context.Cause(limited))
	}
}

// returnGrace is the time for a call to return after its context has ended.
const returnGrace = 100 * time.Millisecond

var errHangs = errors.New("the previous call has not returned although its context has ended")
