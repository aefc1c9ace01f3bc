// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Merge is what all sources want together. It does not change; see [Merge.With]. Make the first one with [NewMerge].
type Merge struct {
	named     []string         // sources that must have reported before all that is wanted is known
	sources   []Accepted       // in the order in which they first reported
	claims    map[string]claim // by pod UID
	contested map[string]bool  // sources that want a UID that another source has
	pods      []*corev1.Pod    // those of the claims, in the order of the sources
	refused   map[string]bool  // UIDs of pods that cannot be run
	unclaimed []RefusedPod     // of these, those whose UID no source has, in the order of the sources
	complete  bool
}

// claim is who has a UID, and for which pod.
type claim struct {
	source string
	pod    *corev1.Pod
}

// RefusedPod is a pod that cannot be run, and the source that desires it.
type RefusedPod struct {
	Source string
	Refusal
}

// NewMerge returns a Merge of sources that have reported nothing yet. Those that are named must have reported completely before
// all that is wanted is known; where none is, the first complete set is enough.
func NewMerge(named ...string) *Merge {
	return &Merge{named: slices.Clone(named)}
}

// Nothing returns what is wanted by nobody: no pod, and that is all.
func Nothing() *Merge { return &Merge{complete: true} }

// With returns what is wanted once a set has replaced the one that its source had, and a refusal for each pod of the set that
// the source does not get because another one has its UID. A UID stays its source's for as long as that wants it, and then
// becomes that of the first other one that does.
func (m *Merge) With(set Accepted) (*Merge, []Refusal) {
	next := &Merge{named: m.named, sources: slices.Clone(m.sources)}
	if i := next.index(set.Source); i >= 0 {
		next.sources[i] = set
	} else {
		next.sources = append(next.sources, set)
	}
	next.claimUIDs(m.claims)
	refusals := next.distribute(set.Source)
	next.complete = next.allReported()
	return next, refusals
}

// claimUIDs finds out whose each UID is, which depends on whose it was.
func (m *Merge) claimUIDs(before map[string]claim) {
	m.claims = make(map[string]claim, len(before))
	for _, s := range m.sources { // those that keep what they have
		for _, pod := range s.Pods {
			if was, ok := before[string(pod.UID)]; ok && was.source == s.Source {
				m.claims[string(pod.UID)] = claim{s.Source, pod}
			}
		}
	}
	for _, s := range m.sources {
		for _, pod := range s.Pods {
			if _, claimed := m.claims[string(pod.UID)]; !claimed {
				m.claims[string(pod.UID)] = claim{s.Source, pod}
			}
		}
	}
}

// distribute makes of the claims what each source gets, and returns a refusal for each pod that the named one does not get.
func (m *Merge) distribute(source string) (refusals []Refusal) {
	m.contested, m.refused, m.unclaimed = map[string]bool{}, map[string]bool{}, nil
	m.pods = make([]*corev1.Pod, 0, len(m.claims))
	for _, s := range m.sources {
		for _, pod := range s.Pods {
			holder := m.claims[string(pod.UID)].source
			if holder == s.Source {
				m.pods = append(m.pods, pod)
				continue
			}
			m.contested[s.Source] = true
			if s.Source == source {
				refusals = append(refusals, Refusal{pod, fmt.Errorf(
					"pod %s/%s: source %q wants its UID %s, which is a pod's of source %q; it waits until that is removed",
					pod.Namespace, pod.Name, source, pod.UID, holder)})
			}
		}
		for _, r := range s.Refused {
			uid := string(r.Pod.UID)
			if _, claimed := m.claims[uid]; !claimed && !m.refused[uid] {
				m.unclaimed = append(m.unclaimed, RefusedPod{s.Source, r})
			}
			m.refused[uid] = true
		}
	}
	return refusals
}

// allReported reports whether all that is wanted is known.
func (m *Merge) allReported() bool {
	for _, name := range m.named {
		if m.index(name) < 0 {
			return false
		}
	}
	return !slices.ContainsFunc(m.sources, func(s Accepted) bool { return s.Incomplete })
}

// index returns where a source stands, or -1 as long as it has reported nothing.
func (m *Merge) index(source string) int {
	return slices.IndexFunc(m.sources, func(s Accepted) bool { return s.Source == source })
}

// Of returns what a source wanted last, and whether it has reported at all.
func (m *Merge) Of(source string) (set Accepted, reported bool) {
	if i := m.index(source); i >= 0 {
		return m.sources[i], true
	}
	return set, false
}

// Contested reports whether a source wants a UID that another source has.
func (m *Merge) Contested(source string) bool { return m.contested[source] }

// Pods yields the pods that are wanted, one for each UID, in the order in which the sources first reported and in that of
// their sets.
func (m *Merge) Pods() iter.Seq[*corev1.Pod] { return slices.Values(m.pods) }

// Pod returns the pod that is wanted with a UID, or nil.
func (m *Merge) Pod(uid string) *corev1.Pod { return m.claims[uid].pod }

// Holder returns the source that has a UID; empty where none wants it.
func (m *Merge) Holder(uid string) string { return m.claims[uid].source }

// Refused reports whether a source wants a pod of this UID that cannot be run.
func (m *Merge) Refused(uid string) bool { return m.refused[uid] }

// RefusedPods returns the pods that cannot be run, one for each UID, but for those whose UID a source has for a pod that can. It must not
// be written to.
func (m *Merge) RefusedPods() []RefusedPod { return m.unclaimed }

// Complete reports whether all that is wanted is known: a set of each source that is named, and none that is incomplete.
func (m *Merge) Complete() bool { return m.complete }
