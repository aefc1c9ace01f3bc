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

// measureCandidates adds the candidates to the observation o, as measured by the last call of Observer.Candidates, and
// returns the error of that call. If there is no result yet, it starts a call in a goroutine and sets o.Measuring. If the
// running call hangs, it returns an error. It then sets o.Measured without candidates, so that the decision does not wait
// for them.
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
		o.Measured = true
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

// applyMeasurement stores the result of Observer.Candidates for the next decision. It drops a result that is outdated or
// took too long. It returns the time of the next observation. If the time soonest has not come, the node must not be
// observed yet: applyMeasurement then decides with the readings of the last observation.
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
