// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"
	"time"
)

// Decision is what is to be done now.
type Decision struct {
	// State is for the next decision. Where Measure is set it is the state before.
	State State
	// NeedsCandidates says that this cannot be decided without candidates: measure them, and decide again with them, from the same
	// readings and the same time. Where that takes long, decide again with Observation.Measuring meanwhile.
	NeedsCandidates bool

	Conditions    []Condition // those that are true, in a fixed order
	StarvedSignal Signal      // whose threshold is acted upon; empty: none is
	// Reclaim is to be done before a pod goes; nil: nothing is. [State.Reclaimed] says when it has ended.
	Reclaim *Reclaim
	Evict   []Eviction // one for a threshold, any number for limits of local storage. See [State.Evicted]
	// NoVictim says why no pod is evicted although the threshold of Starved is met. Its Signal is empty where that is not so.
	NoVictim NoVictim
	// Kill are the UIDs of pods that somebody else evicts and that are not gone in their time: kill them without the runtime, where
	// there is a [Killer].
	Kill []string
	Wake time.Time // when to observe again, unless something ends before
	// Problems are readings and candidates that were left out.
	Problems []error
}

// NoVictim is a threshold that is met while no pod can be evicted: all candidates are critical, or are being evicted already.
type NoVictim struct {
	Signal   Signal
	Pods     int // candidates
	Critical int // of them, those that are never evicted
}

// Decide says what is to be done about an observation. It does nothing, changes none of its arguments, and where nothing is to be
// done it allocates no memory. Times come from the argument alone.
func (p *Policy) Decide(s State, o Observation, now time.Time) Decision {
	d := decider{p: p, o: o, now: now, thresholds: p.layouts[SingleFS].thresholds, ranker: p.layouts[SingleFS].ranker}
	if int(o.Layout) < numLayouts {
		d.thresholds, d.ranker = p.layouts[o.Layout].thresholds, p.layouts[o.Layout].ranker
	}
	d.State = s.expire(now)
	d.read()
	d.meet()
	d.Conditions = d.State.Conditions(p, now)
	d.adopt()
	d.watchAdopted()
	if !d.NeedsCandidates && !d.checkLocal() {
		d.checkThresholds()
	}
	if d.NeedsCandidates {
		d.State = s
	}
	d.State.remember(&d)
	d.Wake = d.wake()
	return d.Decision
}

// Conditions returns the conditions that are true at a time.
func (s State) Conditions(p *Policy, now time.Time) (list []Condition) {
	for i, c := range nodeConditions() {
		if at := s.conditions[i]; !at.IsZero() && now.Sub(at) < p.rules.TransitionPeriod {
			list = append(list, c)
		}
	}
	return list
}

// decider is a decision that is being made.
type decider struct {
	Decision
	p          *Policy
	o          Observation
	now        time.Time
	thresholds []Threshold
	ranker     EvictionRanker

	readings [numSignals]Reading // by index; those without a signal are missing
	stale    [numSignals]bool
	soonest  time.Time
	awaits   Signal // whose reading is to be decided from when there are candidates
}

// read sorts the readings and leaves out those that nothing can be decided from.
func (d *decider) read() {
	for _, r := range d.o.Readings {
		if err := r.check(); err != nil {
			d.Problems = append(d.Problems, err)
			continue
		}
		i := r.Signal.index()
		if d.readings[i].Signal != "" && d.readings[i].Available <= r.Available {
			continue
		}
		d.readings[i] = r
		d.stale[i] = !d.State.seen[i].fresh(r, d.now)
	}
}

// remember keeps the readings for the next decisions. One that is missing once is no newer when it is there again, and one that waits
// for candidates is as new when they are there.
func (s *State) remember(d *decider) {
	if d.NeedsCandidates {
		return
	}
	for i, r := range d.readings {
		if r.Signal != "" && r.Signal != d.awaits {
			s.seen[i] = s.seen[i].next(r, d.now)
		}
	}
}

// meet finds the thresholds that are met, since when, and which conditions that makes true.
func (d *decider) meet() {
	before := d.State.met
	var met []metThreshold
	for _, t := range d.thresholds {
		r := d.readings[t.Signal.index()]
		if r.Signal == "" {
			continue
		}
		was := slices.IndexFunc(before, func(m metThreshold) bool { return m.Threshold == t })
		held := was >= 0 && before[was].due && r.met(t, true)
		if !held && !r.met(t, false) {
			continue
		}
		m := metThreshold{Threshold: t, since: d.now}
		if was >= 0 {
			m.since = notAfter(before[was].since, d.now)
		}
		m.due = d.now.Sub(m.since) >= t.GracePeriod
		met = append(met, m)
		d.State.conditions[t.Signal.condition()] = d.now
	}
	d.State.met = met
	for i := range d.State.reclaims {
		place := func(m metThreshold) bool { return m.Signal.place() == i }
		if !d.State.reclaims[i].running(d.now) && !slices.ContainsFunc(met, place) {
			d.State.reclaims[i] = reclaimed{}
		}
	}
}

// adopt takes notice of pods that somebody else evicts, such as an agent before this one.
func (d *decider) adopt() {
	for i := range d.o.Candidates {
		c := &d.o.Candidates[i]
		if c.Evicting && !d.State.victim(c.UID) {
			d.State = d.State.withAdopted(c.UID, d.deadline(d.p.mostGrace(c)))
		}
	}
}

// watchAdopted forgets pods that were adopted and are gone, or run again, and has those killed that are not gone in their time. That
// takes candidates, because a pod that was held back runs again under its UID. Where there are none, nobody can tell, and it is killed.
func (d *decider) watchAdopted() {
	for _, v := range d.State.victims {
		evicting := func(c Candidate) bool { return c.UID == v.uid && c.Evicting }
		switch {
		case !v.adopted:
		case len(d.o.Candidates) > 0 && !slices.ContainsFunc(d.o.Candidates, evicting):
			d.State = d.State.Evicted(v.uid)
		case v.kill.IsZero():
		case v.kill.After(d.now):
			d.at(v.kill)
		case d.lacks():
		default:
			d.Kill = append(d.Kill, v.uid)
			d.State = d.State.killing(v.uid)
		}
	}
}

// lacks reports whether there are no candidates, and asks for them where nobody has yet.
func (d *decider) lacks() bool {
	if !d.o.Measured && !d.o.Measuring {
		d.NeedsCandidates = true
	}
	return !d.o.Measured
}

// deadline is when a pod that is evicted now must be gone. Source: killPodNow in pkg/kubelet/pod_workers.go, and
// waitForPodsCleanup in pkg/kubelet/eviction/eviction_manager.go.
func (d *decider) deadline(grace time.Duration) time.Time {
	return d.now.Add(max(10*time.Second, grace+grace/2) + cleanupTimeout)
}

// checkLocal evicts all pods that exceed a limit of local storage, and reports whether there is nothing else to do now.
func (d *decider) checkLocal() bool {
	if d.p.rules.NoLocalStorage {
		return false
	}
	if !d.o.Measured {
		next := d.State.local.Add(localPeriod)
		if d.State.local.IsZero() || !next.After(d.now) {
			d.lacks()
			return d.NeedsCandidates
		}
		d.at(next)
		return false
	}
	d.State.local = d.now
	d.at(d.now.Add(localPeriod))
	for i := range d.o.Candidates {
		c := &d.o.Candidates[i]
		if c.ExceededLimit == nil || c.Critical || d.State.victim(c.UID) {
			continue
		}
		e := Eviction{UID: c.UID, Name: c.Name, Signal: c.ExceededLimit.Signal, Message: c.ExceededLimit.Message, Grace: minGrace}
		d.Evict = append(d.Evict, e)
		d.State = d.State.withVictim(c.UID, d.deadline(e.Grace))
	}
	return len(d.Evict) > 0
}

// checkThresholds acts upon the first threshold that something can be done about.
func (d *decider) checkThresholds() {
	if until := d.State.blocked(); until.After(d.now) {
		d.at(until)
		return
	}
	for _, m := range d.State.met {
		if !m.due {
			d.at(m.since.Add(m.GracePeriod))
			continue
		}
		i := m.Signal.index()
		if d.stale[i] || !d.reclaim(m.Threshold, d.readings[i]) {
			continue
		}
		d.StarvedSignal = m.Signal
		if d.Reclaim == nil {
			d.evict(m.Threshold, d.readings[i])
		}
		return
	}
}

// reclaim reports whether it is time to act upon a threshold: to reclaim, or, where that was done or cannot be, to evict.
func (d *decider) reclaim(t Threshold, r Reading) bool {
	want := r.missing(t, true)
	kind := d.p.kind(t, r, d.o.Layout, want)
	if kind == 0 {
		return true
	}
	at := &d.State.reclaims[t.Signal.place()]
	if !at.vain.IsZero() && (d.p.rules.FixedPeriod > 0 || d.now.Sub(at.vain) >= maxPeriod) {
		*at = reclaimed{} // no pod can go: look again for what else there is
	}
	switch {
	case at.running(d.now):
		d.at(at.deadline())
		return false
	case at.kind&kind == kind:
		until := at.ended.Add(reclaimWait)
		late := !at.ended.IsZero() && at.kind != ReclaimCache && at.freed > 0 && !d.p.rules.NoReclaimWait
		if late && until.After(d.now) {
			d.at(until)
			return false
		}
		return true
	}
	d.Reclaim = &Reclaim{Signal: t.Signal, Kind: kind, Missing: want, begun: d.now}
	*at = reclaimed{signal: t.Signal, kind: at.kind | kind, begun: d.now}
	d.at(at.deadline())
	return true
}

// kind returns what is to be reclaimed before a pod is evicted.
func (p *Policy) kind(t Threshold, r Reading, l Layout, want int64) ReclaimKind {
	if t.Signal.Resource() != Memory {
		return l.ReclaimKinds(t.Signal)
	}
	if p.rules.NoCache || r.Reclaimable < want {
		return 0
	}
	return ReclaimCache
}

// evict chooses the pod that goes.
func (d *decider) evict(t Threshold, r Reading) {
	if d.lacks() {
		d.awaits = t.Signal
		return
	}
	ranked := d.ranker.Rank(t.Signal, slices.Clone(d.o.Candidates))
	i := slices.IndexFunc(ranked, func(c Candidate) bool { return !c.Critical && !d.State.victim(c.UID) })
	if i < 0 {
		d.NoVictim = NoVictim{Signal: t.Signal, Pods: len(ranked)}
		for j := range ranked {
			if ranked[j].Critical {
				d.NoVictim.Critical++
			}
		}
		if n := t.Signal.place(); n >= 0 && d.State.reclaims[n].vain.IsZero() {
			d.State.reclaims[n].vain = d.now
		}
		return
	}
	c := &ranked[i]
	e := Eviction{UID: c.UID, Name: c.Name, Signal: t.Signal, Grace: d.p.grace(t, c), Urgent: t.Hard() && t.Signal.Resource() == Memory}
	e.Threshold, e.Available = r.amounts(t)
	e.Message = "The node was low on resource: " + string(t.Signal.Resource()) + ". " +
		"Threshold quantity: " + e.Threshold + ", available: " + e.Available + ". "
	d.Evict = []Eviction{e}
	d.State = d.State.withVictim(e.UID, d.deadline(e.Grace))
	if i := t.Signal.place(); i >= 0 {
		d.State.reclaims[i] = reclaimed{}
	}
}

// at has the decision looked at again at a time.
func (d *decider) at(t time.Time) {
	if d.soonest.IsZero() || t.Before(d.soonest) {
		d.soonest = t
	}
}

// wake returns when to observe again.
func (d *decider) wake() time.Time {
	if d.p.rules.FixedPeriod > 0 {
		return d.now.Add(d.p.rules.FixedPeriod)
	}
	period := maxPeriod
	for _, t := range d.thresholds {
		i := t.Signal.index()
		switch r := d.readings[i]; {
		case r.Signal == "":
		case !r.met(t, false):
			period = min(period, d.State.seen[i].period(r, t))
		default:
			period = min(period, metPeriod)
		}
	}
	for _, at := range d.State.conditions {
		if end := at.Add(d.p.rules.TransitionPeriod); !at.IsZero() && end.After(d.now) {
			d.at(end)
		}
	}
	wake := d.now.Add(period)
	if !d.soonest.IsZero() && d.soonest.Before(wake) {
		wake = d.soonest
	}
	if least := d.now.Add(minPeriod); wake.Before(least) {
		return least
	}
	return wake
}

// metPeriod is how often a threshold is looked at that is met.
const metPeriod = time.Second
