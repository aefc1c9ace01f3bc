// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"context"
	"time"
)

// measurement is what Run knows of calls of Observer.Candidates, of which there is one at a time.
type measurement struct {
	begun    time.Time // when the call began that has not returned; zero: there is none
	outdated bool      // since then a pod has gone: what the call returns does not hold
	answer   *measured // what the last call returned, for the next decision
}

// measured is what a call of Observer.Candidates returned.
type measured struct {
	candidates []Candidate
	err        error
	took       time.Duration
}

// observed is what the last pass has read, and when.
type observed struct {
	Observation
	now time.Time
	err error
}

// measure adds to an observation what was measured of pods. Where nothing was it begins to, and does not wait.
func (r *runner) measure(ctx context.Context, o *Observation) error {
	if a := r.pods.answer; a != nil {
		o.Candidates, o.Measured = a.candidates, true // as far as it goes
		return a.err
	}
	if r.pods.begun.IsZero() {
		r.pods = measurement{begun: time.Now()}
		r.wg.Go(func() { r.askCandidates(ctx) })
	}
	if time.Since(r.pods.begun) > candidatesTimeout+grantedLate {
		o.Measured = true
		return errHangs
	}
	o.Measuring = true
	return nil
}

// askCandidates measures pods, for Run.
func (r *runner) askCandidates(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, candidatesTimeout)
	defer cancel()
	began := time.Now()
	list, err := r.evictor.observer.Candidates(limited)
	select {
	case r.answers <- measured{list, err, time.Since(began)}:
	case <-ctx.Done():
	}
}

// take takes up what was measured, unless it came too late, and returns when to observe again. What the last pass has read counts if
// no other pass may begin yet.
func (r *runner) take(ctx context.Context, a measured, soonest time.Time) time.Time {
	outdated := r.pods.outdated || a.took > candidatesTimeout+grantedLate
	r.pods = measurement{}
	if outdated {
		return soonest
	}
	r.pods.answer = &a
	if r.last == nil || !time.Now().Before(soonest) {
		return soonest
	}
	return r.decide(ctx)
}

// outdate has nothing count that was measured when a pod was there that is gone.
func (m *measurement) outdate() {
	m.outdated, m.answer = true, nil
}
