// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podset_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/podset"
)

// TestMergeOfRandomSets lets three sources report random sets, and compares each merge with a model and with the previous merge.
func TestMergeOfRandomSets(t *testing.T) {
	for seed := range uint64(1000) {
		mergeRandomSets(t, seed)
	}
}

func FuzzMergeOfRandomSets(f *testing.F) {
	f.Add(uint64(0))
	f.Fuzz(mergeRandomSets)
}

func mergeRandomSets(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &model{T: t, seed: seed, named: allSources()[:rnd.IntN(len(allSources())+1)]}
	merge := podset.NewMerge(m.named...)
	for range 20 {
		set := randomSet(rnd)
		before, was := merge, m.describe(merge)
		next, refusals := merge.With(set)
		m.require(m.describe(before) == was, "With modifies the previous merge")
		merge = next
		m.checkStable(before, merge, set)
		m.applySet(set)
		m.check(merge, set, refusals)
	}
}

func allSources() []string { return []string{"file", "http", "api"} }
func allUIDs() []string    { return []string{"a", "b", "c", "d"} }

// randomSet returns a random set of a random source. The pods that the set omits may be refused.
func randomSet(rnd *rand.Rand) (set podset.Accepted) {
	set.Source = allSources()[rnd.IntN(len(allSources()))]
	set.Incomplete = rnd.IntN(4) == 0
	for _, i := range rnd.Perm(len(allUIDs())) {
		switch uid := allUIDs()[i]; rnd.IntN(4) {
		case 0, 1:
			set.Pods = append(set.Pods, newPod(uid+"/"+set.Source))
		case 2:
			set.Refused = append(set.Refused, podset.Refusal{Pod: newPod(uid)})
		}
	}
	return set
}

// model computes a merge in a slow but simple way.
type model struct {
	*testing.T
	seed  uint64
	named []string
	order []string                   // order of the sources
	last  map[string]podset.Accepted // last set by source
	owner map[string]string          // source by UID
}

func (m *model) require(ok bool, format string, args ...any) {
	m.Helper()
	if !ok {
		require.Fail(m, fmt.Sprintf(format, args...), "seed %d", m.seed)
	}
}

// listedPod returns the pod with this UID that source lists, or nil.
func (m *model) listedPod(source, uid string) *corev1.Pod {
	for _, pod := range m.last[source].Pods {
		if string(pod.UID) == uid {
			return pod
		}
	}
	return nil
}

// applySet records the new set of a source.
func (m *model) applySet(set podset.Accepted) {
	if m.last == nil {
		m.last, m.owner = map[string]podset.Accepted{}, map[string]string{}
	}
	if _, known := m.last[set.Source]; !known {
		m.order = append(m.order, set.Source)
	}
	m.last[set.Source] = set
	for _, uid := range allUIDs() {
		if owner, owned := m.owner[uid]; owned && m.listedPod(owner, uid) != nil {
			continue
		}
		delete(m.owner, uid)
		for _, source := range slices.Backward(m.order) {
			if m.listedPod(source, uid) != nil {
				m.owner[uid] = source // the first source in order overwrites the later ones
			}
		}
	}
}

// isComplete reports whether all named sources have reported and no set is incomplete.
func (m *model) isComplete() bool {
	for _, name := range m.named {
		if _, reported := m.last[name]; !reported {
			return false
		}
	}
	for _, set := range m.last {
		if set.Incomplete {
			return false
		}
	}
	return true
}

// check compares a merge and the refusals of the last set with the model.
func (m *model) check(merge *podset.Merge, set podset.Accepted, refusals []podset.Refusal) {
	m.Helper()
	var pods []*corev1.Pod
	var unclaimed []podset.RefusedPod
	refused := map[string]bool{}
	for _, source := range m.order {
		contested := false
		for _, pod := range m.last[source].Pods {
			if m.owner[string(pod.UID)] == source {
				pods = append(pods, pod)
			} else {
				contested = true
			}
		}
		for _, r := range m.last[source].Refused {
			if uid := string(r.Pod.UID); !refused[uid] && m.owner[uid] == "" {
				unclaimed = append(unclaimed, podset.RefusedPod{Source: source, Refusal: r})
			}
			refused[string(r.Pod.UID)] = true
		}
		m.require(merge.IsContested(source) == contested, "source %s: IsContested returns %t", source, !contested)
		of, reported := merge.LastSet(source)
		m.require(reported && slices.Equal(of.Pods, m.last[source].Pods), "last set of source %s: %v", source, of)
	}
	m.require(slices.Equal(slices.Collect(merge.Pods()), pods), "merged pods: %s", m.describe(merge))
	for _, uid := range allUIDs() {
		owner := m.owner[uid]
		m.require(merge.SourceOf(uid) == owner, "source of %s: %q, not %q", uid, merge.SourceOf(uid), owner)
		m.require(merge.Pod(uid) == m.listedPod(owner, uid), "the pod with UID %s differs", uid)
		m.require(merge.IsRefused(uid) == refused[uid], "pod %s: IsRefused returns %t", uid, !refused[uid])
	}
	m.require(slices.Equal(merge.RefusedPods(), unclaimed), "refused pods %v, not %v", merge.RefusedPods(), unclaimed)
	m.require(merge.IsComplete() == m.isComplete(), "complete: %t", merge.IsComplete())
	var lost []*corev1.Pod
	for _, pod := range set.Pods {
		if m.owner[string(pod.UID)] != set.Source {
			lost = append(lost, pod)
		}
	}
	refusedPods := []*corev1.Pod{}
	for _, r := range refusals {
		m.require(r.Err != nil, "a refusal without an error")
		refusedPods = append(refusedPods, r.Pod)
	}
	m.require(slices.Equal(lost, refusedPods), "%d pods lose their UID to another source, %d pods are refused", len(lost), len(refusedPods))
}

// checkStable checks that a source keeps a UID as long as it lists the pod.
func (m *model) checkStable(before, after *podset.Merge, set podset.Accepted) {
	m.Helper()
	for _, uid := range allUIDs() {
		holder := before.SourceOf(uid)
		dropped := holder == set.Source && !slices.ContainsFunc(set.Pods, func(pod *corev1.Pod) bool { return string(pod.UID) == uid })
		m.require(holder == "" || dropped || after.SourceOf(uid) == holder, "UID %s moved from source %s to %s", uid, holder, after.SourceOf(uid))
	}
}

// describe returns the content of a merge, with the pointers of its pods, as text.
func (m *model) describe(merge *podset.Merge) (s string) {
	for pod := range merge.Pods() {
		s += fmt.Sprintf("%s=%p ", pod.UID, pod)
	}
	for _, uid := range allUIDs() {
		s += fmt.Sprint(uid, " ", merge.SourceOf(uid), " ", merge.IsRefused(uid), " ")
	}
	for _, source := range allSources() {
		set, reported := merge.LastSet(source)
		s += fmt.Sprintf("%s %p %t %t ", source, set.Pods, reported, merge.IsContested(source))
	}
	return s + fmt.Sprint(merge.IsComplete())
}
