// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"
)

// Decision is the result of [Policy.Decide]: the actions to start now.
type Decision struct {
	// State is the input of the next decision. If NeedsCandidates is set, it is the State passed to Decide.
	State State
	// NeedsCandidates means that this decision needs the candidates. The caller measures them and calls Decide again with
	// these readings and this time. While a slow measurement runs, the caller sets Observation.Measuring instead.
	NeedsCandidates bool

	Conditions    []Condition // true conditions in a fixed order
	StarvedSignal Signal      // signal whose threshold causes Reclaim or Evict; empty: none
	// Reclaim is executed before a pod is evicted; nil: nothing to reclaim. The caller calls [State.Reclaimed] when it has ended.
	Reclaim *Reclaim
	Evict   []Eviction // one pod for a threshold, several for limits of local storage; see [State.Evicted]
	// NoVictim is set if no pod can be evicted although the threshold of StarvedSignal is met. Otherwise its Signal is empty.
	NoVictim NoVictim
	// Kill lists the UIDs of pods that were being evicted before this process started and have not terminated in time. A [Killer]
	// kills them without the runtime.
	Kill []string
	Wake time.Time // time of the next observation; the caller observes earlier if an action ends
	// Problems are the errors of skipped readings and candidates.
	Problems []error
}

// NoVictim reports that a threshold is met but no pod can be evicted: all candidates are critical or are being evicted.
type NoVictim struct {
	Signal   Signal
	Pods     int // number of candidates
	Critical int // number of critical candidates, which are never evicted
}

// Decide returns the actions that the observation requires at the time now. Decision.State is the state to pass to the next
// call. Decide modifies no argument and reads no clock. If no action is due, it allocates no memory.
func (p *Policy) Decide(s State, observation Observation, now time.Time) Decision {
	d := decider{policy: p, observation: observation, now: now, thresholds: p.layouts[SingleFS].thresholds, ranker: p.layouts[SingleFS].ranker}
	if int(observation.Layout) < numLayouts {
		d.thresholds, d.ranker = p.layouts[observation.Layout].thresholds, p.layouts[observation.Layout].ranker
	}
	d.decision.State = s.dropExpired(now)
	d.indexReadings()
	d.evaluateThresholds()
	d.decision.Conditions = d.decision.State.Conditions(p, now)
	d.adoptVictims()
	d.updateAdopted()
	if !d.decision.NeedsCandidates && !d.checkStorageLimits() {
		d.checkThresholds()
	}
	if d.decision.NeedsCandidates {
		d.decision.State = s
	}
	d.decision.State.recordReadings(&d)
	d.decision.Wake = d.nextWake()
	return d.decision
}

// Conditions returns the node conditions that are true now. A condition remains true until the TransitionPeriod of p has
// passed since one of its thresholds was last met.
func (s State) Conditions(p *Policy, now time.Time) (list []Condition) {
	for i, c := range nodeConditions() {
		if at := s.conditions[i]; !at.IsZero() && now.Sub(at) < p.rules.TransitionPeriod {
			list = append(list, c)
		}
	}
	return list
}

// decider holds the arguments and intermediate results of one [Policy.Decide].
type decider struct {
	decision    Decision
	policy      *Policy
	observation Observation
	now         time.Time
	thresholds  []Threshold
	ranker      EvictionRanker

	readings       [numSignals]Reading // by signal index; an empty Signal means missing
	stale          [numSignals]bool    // readings that a previous decision has already used
	earliest       time.Time           // earliest time of the next decision; zero: none
	deferredSignal Signal              // signal whose reading is used again once the candidates are measured
}

// indexReadings stores the valid readings of the observation by signal, and adds errors for the invalid ones.
func (d *decider) indexReadings() {
	for _, r := range d.observation.Readings {
		if err := r.validate(); err != nil {
			d.decision.Problems = append(d.decision.Problems, err)
			continue
		}
		i := r.Signal.index()
		// of two readings, the one with less available is kept
		if d.readings[i].Signal != "" && d.readings[i].Available <= r.Available {
			continue
		}
		d.readings[i] = r
		d.stale[i] = !d.decision.State.samples[i].isNew(r, d.now)
	}
}

// recordReadings stores the readings of this decision, so that the next decision detects new readings.
func (s *State) recordReadings(d *decider) {
	if d.decision.NeedsCandidates {
		return
	}
	for i, r := range d.readings {
		if r.Signal != "" && r.Signal != d.deferredSignal { // no pod was evicted yet, so that reading must still count as new
			s.samples[i] = s.samples[i].nextSample(r, d.now)
		}
	}
}

// evaluateThresholds stores which thresholds are met, and sets their node conditions.
func (d *decider) evaluateThresholds() {
	before := d.decision.State.met
	var met []metThreshold
	for _, t := range d.thresholds {
		r := d.readings[t.Signal.index()]
		if r.Signal == "" {
			continue
		}
		index := slices.IndexFunc(before, func(m metThreshold) bool { return m.threshold == t })
		// a threshold that was met for its grace period stays met until its minimum reclaim is available too
		held := index >= 0 && before[index].due && r.isBelow(t, true)
		if !held && !r.isBelow(t, false) {
			continue
		}
		m := metThreshold{threshold: t, since: d.now}
		if index >= 0 {
			m.since = notAfter(before[index].since, d.now)
		}
		m.due = d.now.Sub(m.since) >= t.GracePeriod
		met = append(met, m)
		d.decision.State.conditions[t.Signal.conditionIndex()] = d.now
	}
	d.decision.State.met = met
	for i := range d.decision.State.reclaims {
		sameReclaim := func(m metThreshold) bool { return m.threshold.Signal.reclaimIndex() == i }
		if !d.decision.State.reclaims[i].isRunning(d.now) && !slices.ContainsFunc(met, sameReclaim) {
			d.decision.State.reclaims[i] = reclaimState{}
		}
	}
}

// adoptVictims records a victim for each eviction that was started elsewhere, for example by a previous agent process.
func (d *decider) adoptVictims() {
	for i := range d.observation.Candidates {
		c := &d.observation.Candidates[i]
		if c.Evicting && !d.decision.State.isVictim(c.UID) {
			d.decision.State = d.decision.State.withAdopted(c.UID, d.victimDeadline(d.policy.maxGracePeriod(c)))
		}
	}
}

// updateAdopted removes adopted victims that are no longer being evicted, and kills those that did not terminate in time.
func (d *decider) updateAdopted() {
	for _, v := range d.decision.State.victims {
		evicting := func(c Candidate) bool { return c.UID == v.uid && c.Evicting }
		switch {
		case !v.adopted:
		case len(d.observation.Candidates) > 0 && !slices.ContainsFunc(d.observation.Candidates, evicting):
			d.decision.State = d.decision.State.Evicted(v.uid) // terminated, or started again
		case v.kill.IsZero():
		case v.kill.After(d.now):
			d.wakeAt(v.kill)
		case d.requireCandidates():
		default:
			d.decision.Kill = append(d.decision.Kill, v.uid)
			d.decision.State = d.decision.State.withKillStarted(v.uid)
		}
	}
}

// requireCandidates reports whether the candidates are not measured yet: the caller must then return, and they will be
// measured.
func (d *decider) requireCandidates() (missing bool) {
	if !d.observation.Measured && !d.observation.Measuring {
		d.decision.NeedsCandidates = true
	}
	return !d.observation.Measured
}

// victimDeadline returns when a pod that is evicted now must have terminated. Source: killPodNow in
// pkg/kubelet/pod_workers.go, and waitForPodsCleanup in pkg/kubelet/eviction/eviction_manager.go.
func (d *decider) victimDeadline(grace time.Duration) time.Time {
	return d.now.Add(max(10*time.Second, grace+grace/2) + cleanupTimeout)
}

// checkStorageLimits evicts all pods that exceed a limit of local storage. If it returns true, thresholds must not be
// checked now.
func (d *decider) checkStorageLimits() (stop bool) {
	if d.policy.rules.NoLocalStorage {
		return false
	}
	// the limits are checked with each measurement, at least every 10 s
	if !d.observation.Measured {
		next := d.decision.State.storageChecked.Add(localPeriod)
		if d.decision.State.storageChecked.IsZero() || !next.After(d.now) {
			d.requireCandidates()
			return d.decision.NeedsCandidates
		}
		d.wakeAt(next)
		return false
	}
	d.decision.State.storageChecked = d.now
	d.wakeAt(d.now.Add(localPeriod))
	for i := range d.observation.Candidates {
		c := &d.observation.Candidates[i]
		if c.ExceededLimit == nil || c.Critical || d.decision.State.isVictim(c.UID) {
			continue
		}
		e := Eviction{UID: c.UID, Name: c.Name, Signal: c.ExceededLimit.Signal, Message: c.ExceededLimit.Message, Grace: minGrace}
		d.decision.Evict = append(d.decision.Evict, e)
		d.decision.State = d.decision.State.withVictim(c.UID, d.victimDeadline(e.Grace))
	}
	return len(d.decision.Evict) > 0
}

// checkThresholds starts a reclaim or an eviction for the first threshold that was met for its grace period.
func (d *decider) checkThresholds() {
	if until := d.decision.State.blockedUntil(); until.After(d.now) {
		d.wakeAt(until) // a previous eviction has not ended
		return
	}
	for _, m := range d.decision.State.met {
		if !m.due {
			d.wakeAt(m.since.Add(m.threshold.GracePeriod))
			continue
		}
		i := m.threshold.Signal.index()
		// no new reading, or a reclaim is running
		if d.stale[i] || !d.decideReclaim(m.threshold, d.readings[i]) {
			continue
		}
		d.decision.StarvedSignal = m.threshold.Signal
		if d.decision.Reclaim == nil {
			d.selectVictim(m.threshold, d.readings[i])
		}
		return
	}
}

// decideReclaim decides whether to free caches, containers or images instead of an eviction. It returns false if the
// threshold must wait.
func (d *decider) decideReclaim(t Threshold, reading Reading) (proceed bool) {
	missing := reading.amountMissing(t, true)
	kind := d.policy.reclaimKind(t, reading, d.observation.Layout, missing)
	if kind == 0 {
		return true // evict a pod
	}
	at := &d.decision.State.reclaims[t.Signal.reclaimIndex()]
	if !at.noVictimSince.IsZero() && (d.policy.rules.FixedPeriod > 0 || d.now.Sub(at.noVictimSince) >= maxPeriod) {
		*at = reclaimState{} // no pod can be evicted: allow another reclaim
	}
	switch {
	case at.isRunning(d.now):
		d.wakeAt(at.deadline())
		return false
	case at.kind&kind == kind:
		until := at.ended.Add(reclaimWait)
		settling := !at.ended.IsZero() && at.kind != ReclaimCache && at.freed > 0 && !d.policy.rules.NoReclaimWait
		if settling && until.After(d.now) {
			d.wakeAt(until)
			return false
		}
		return true
	}
	d.decision.Reclaim = &Reclaim{Signal: t.Signal, Kind: kind, Missing: missing, begun: d.now}
	*at = reclaimState{signal: t.Signal, kind: at.kind | kind, begun: d.now}
	d.wakeAt(at.deadline())
	return true
}

// reclaimKind returns which resources to reclaim before a pod is evicted for t; zero means none.
func (p *Policy) reclaimKind(t Threshold, reading Reading, layout Layout, missing int64) ReclaimKind {
	if t.Signal.Resource() != Memory {
		return layout.ReclaimKinds(t.Signal)
	}
	// caches help only if they have all missing bytes
	if p.rules.NoCache || reading.Reclaimable < missing {
		return 0
	}
	return ReclaimCache
}

// selectVictim evicts the first pod of the ranker that is not critical and not being evicted. Without one, it sets
// Decision.NoVictim.
func (d *decider) selectVictim(t Threshold, reading Reading) {
	if d.requireCandidates() { // decide again after the measurement
		d.deferredSignal = t.Signal
		return
	}
	ranked := d.ranker.Rank(t.Signal, slices.Clone(d.observation.Candidates))
	i := slices.IndexFunc(ranked, func(c Candidate) bool { return !c.Critical && !d.decision.State.isVictim(c.UID) })
	if i < 0 {
		d.decision.NoVictim = NoVictim{Signal: t.Signal, Pods: len(ranked)}
		for j := range ranked {
			if ranked[j].Critical {
				d.decision.NoVictim.Critical++
			}
		}
		if n := t.Signal.reclaimIndex(); n >= 0 && d.decision.State.reclaims[n].noVictimSince.IsZero() {
			d.decision.State.reclaims[n].noVictimSince = d.now
		}
		return
	}
	c := &ranked[i]
	e := Eviction{UID: c.UID, Name: c.Name, Signal: t.Signal, Grace: d.policy.gracePeriod(t, c), Urgent: t.Hard() && t.Signal.Resource() == Memory}
	e.Threshold, e.Available = reading.formatAmounts(t)
	e.Message = "The node was low on resource: " + string(t.Signal.Resource()) + ". " +
		"Threshold quantity: " + e.Threshold + ", available: " + e.Available + ". "
	d.decision.Evict = []Eviction{e}
	d.decision.State = d.decision.State.withVictim(e.UID, d.victimDeadline(e.Grace))
	if i := t.Signal.reclaimIndex(); i >= 0 {
		d.decision.State.reclaims[i] = reclaimState{}
	}
}

// wakeAt plans the next decision for the time t, unless an earlier time is already planned.
func (d *decider) wakeAt(t time.Time) {
	if d.earliest.IsZero() || t.Before(d.earliest) {
		d.earliest = t
	}
}

// nextWake returns when to observe the node next: in 100 ms to 10 s, sooner if a threshold is met or close.
func (d *decider) nextWake() time.Time {
	if d.policy.rules.FixedPeriod > 0 {
		return d.now.Add(d.policy.rules.FixedPeriod)
	}
	period := maxPeriod
	for _, t := range d.thresholds {
		i := t.Signal.index()
		switch r := d.readings[i]; {
		case r.Signal == "":
		case !r.isBelow(t, false):
			period = min(period, d.decision.State.samples[i].nextPeriod(r, t))
		default:
			period = min(period, metPeriod)
		}
	}
	for _, at := range d.decision.State.conditions {
		if end := at.Add(d.policy.rules.TransitionPeriod); !at.IsZero() && end.After(d.now) {
			d.wakeAt(end)
		}
	}
	wake := d.now.Add(period)
	if !d.earliest.IsZero() && d.earliest.Before(wake) {
		wake = d.earliest
	}
	if least := d.now.Add(minPeriod); wake.Before(least) {
		return least
	}
	return wake
}

// metPeriod is the time between observations while a threshold is met.
const metPeriod = time.Second
