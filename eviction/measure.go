// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"time"
)

// measurement is the state of the calls of Observer.Candidates. At most one call is running.
type measurement struct {
	started  time.Time      // start of the running call; zero: no call is running
	outdated bool           // a pod has terminated since the start, so the result must be dropped
	result   *measureResult // result of the last call, for the next decision; nil: none
}

// measureResult is the result of a call of Observer.Candidates.
type measureResult struct {
	candidates []Candidate
	err        error
	duration   time.Duration
}

// lastObservation is the last observation of the node, with its time and error.
type lastObservation struct {
	observation Observation
	now         time.Time
	err         error
}

// measureCandidates adds the measured candidates to the observation, or starts a measurement.
func (r *runner) measureCandidates(ctx context.Context, o *Observation) error {
	if a := r.pods.result; a != nil {
		o.Candidates, o.Measured = a.candidates, true // possibly incomplete
		return a.err
	}
	if r.pods.started.IsZero() {
		r.pods = measurement{started: time.Now()}
		r.wg.Go(func() { r.callCandidates(ctx) })
	}
	if time.Since(r.pods.started) > candidatesTimeout+returnGrace {
		o.Measured = true // without candidates: the decision must not wait for them
		return errHangs
	}
	o.Measuring = true
	return nil
}

// callCandidates calls Observer.Candidates and sends the result to the goroutine of Run.
func (r *runner) callCandidates(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, candidatesTimeout)
	defer cancel()
	began := time.Now()
	list, err := r.evictor.observer.Candidates(limited)
	select {
	case r.measurements <- measureResult{list, err, time.Since(began)}:
	case <-ctx.Done():
	}
}

// applyMeasurement stores measured candidates for the next decision, unless they are outdated, and returns when to
// observe next.
func (r *runner) applyMeasurement(ctx context.Context, result measureResult, soonest time.Time) time.Time {
	outdated := r.pods.outdated || result.duration > candidatesTimeout+returnGrace
	r.pods = measurement{}
	if outdated {
		return soonest
	}
	r.pods.result = &result
	if r.last == nil || !time.Now().Before(soonest) {
		return soonest
	}
	// It is too early for another observation: decide now with the readings of the last one.
	return r.decide(ctx)
}

// invalidate drops the measured candidates, because a pod has terminated. If a measurement is running, its result will be
// dropped too.
func (m *measurement) invalidate() {
	m.outdated, m.result = true, nil
}
