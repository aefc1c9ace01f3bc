// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Merge holds the desired pods of all sources. It is immutable; see [Merge.With]. Use [NewMerge] to create it.
type Merge struct {
	required    []string         // sources that must have reported before the merge is complete
	sources     []Accepted       // in the order of their first report
	claims      map[string]claim // by pod UID
	contested   map[string]bool  // sources that list a UID which belongs to another source
	pods        []*corev1.Pod    // desired pods, in the order of the sources
	refused     map[string]bool  // UIDs of pods that cannot be run
	refusedPods []RefusedPod     // refused pods whose UID belongs to no source, in the order of the sources
	complete    bool
}

// claim is the source that a UID belongs to, and the pod with this UID in that source.
type claim struct {
	source string
	pod    *corev1.Pod
}

// RefusedPod is a pod that cannot be run, and the source that lists it.
type RefusedPod struct {
	Source string
	Refusal
}

// NewMerge returns a Merge without pods. It is complete once each of the named sources has reported all its pods. Without
// names, one complete report of any source suffices.
func NewMerge(named ...string) *Merge {
	return &Merge{required: slices.Clone(named)}
}

// EmptyMerge returns a complete Merge without pods, for an agent whose sources list no pod.
func EmptyMerge() *Merge { return &Merge{complete: true} }

// With returns a new Merge in which set replaces the previous set of its source. A UID that two sources list belongs to the
// first of them, until that source no longer lists it. The refusals are for the pods of set whose UID belongs to another
// source.
func (m *Merge) With(set Accepted) (*Merge, []Refusal) {
	next := &Merge{required: m.required, sources: slices.Clone(m.sources)}
	if i := next.sourceIndex(set.Source); i >= 0 {
		next.sources[i] = set
	} else {
		next.sources = append(next.sources, set)
	}
	next.claimUIDs(m.claims)
	refusals := next.assignPods(set.Source)
	next.complete = next.hasAllReported()
	return next, refusals
}

// claimUIDs assigns each UID to one source that lists it, if possible to the same source as before.
func (m *Merge) claimUIDs(previousClaims map[string]claim) {
	m.claims = make(map[string]claim, len(previousClaims))
	for _, s := range m.sources { // existing claims stay
		for _, pod := range s.Pods {
			if previous, ok := previousClaims[string(pod.UID)]; ok && previous.source == s.Source {
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

// assignPods computes the desired and the refused pods from m.claims, and returns the refusals for the given source.
func (m *Merge) assignPods(source string) (refusals []Refusal) {
	m.contested, m.refused, m.refusedPods = map[string]bool{}, map[string]bool{}, nil
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
					"pod %s/%s: source %q lists its UID %s, which belongs to a pod of source %q until that pod is removed",
					pod.Namespace, pod.Name, source, pod.UID, holder)})
			}
		}
		for _, r := range s.Refused {
			uid := string(r.Pod.UID)
			if _, claimed := m.claims[uid]; !claimed && !m.refused[uid] {
				m.refusedPods = append(m.refusedPods, RefusedPod{s.Source, r})
			}
			m.refused[uid] = true
		}
	}
	return refusals
}

// hasAllReported reports whether each required source has reported its pods. It returns false if the last report of any
// source was incomplete.
func (m *Merge) hasAllReported() bool {
	for _, name := range m.required {
		if m.sourceIndex(name) < 0 {
			return false
		}
	}
	return !slices.ContainsFunc(m.sources, func(s Accepted) bool { return s.Incomplete })
}

// sourceIndex returns the index of a source, or -1 before its first report.
func (m *Merge) sourceIndex(source string) int {
	return slices.IndexFunc(m.sources, func(s Accepted) bool { return s.Source == source })
}

// LastSet returns the last set of pods that source has reported. reported is false if source has not reported yet.
func (m *Merge) LastSet(source string) (set Accepted, reported bool) {
	if i := m.sourceIndex(source); i >= 0 {
		return m.sources[i], true
	}
	return set, false
}

// IsContested reports whether source lists a pod with a UID that belongs to another source.
func (m *Merge) IsContested(source string) bool { return m.contested[source] }

// Pods yields the desired pods, one per UID, in the order of the sources and of their sets.
func (m *Merge) Pods() iter.Seq[*corev1.Pod] { return slices.Values(m.pods) }

// Pod returns the desired pod with this UID, or nil.
func (m *Merge) Pod(uid string) *corev1.Pod { return m.claims[uid].pod }

// SourceOf returns the name of the source that the UID belongs to, or "" if no source lists it.
func (m *Merge) SourceOf(uid string) string { return m.claims[uid].source }

// IsRefused reports whether a source lists a pod with this UID that failed the checks of [Accept].
func (m *Merge) IsRefused(uid string) bool { return m.refused[uid] }

// RefusedPods returns the pods that failed the checks of [Accept], one per UID. It omits a UID for which another source
// lists a pod that passed. The caller must not modify the slice.
func (m *Merge) RefusedPods() []RefusedPod { return m.refusedPods }

// IsComplete reports whether m contains all desired pods: each required source has reported, and no set is incomplete.
func (m *Merge) IsComplete() bool { return m.complete }
