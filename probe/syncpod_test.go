// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// podTarget returns a target of a pod.
func podTarget(pod, container string) probe.Target {
	target := runningTarget(container, succeed)
	target.PodUID = pod
	return target
}

// probesWithValue returns the probes of a set that have a value, as "pod/container".
func probesWithValue(s *probe.Set) []string {
	var names []string
	for k := range s.Results() {
		names = append(names, k.PodUID+"/"+k.Container)
	}
	slices.Sort(names)
	return names
}

// The targets of one pod replace its previous targets and do not affect other pods.
func TestSyncPodReplacesTargetsOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		a, b, c := podTarget("p", "a"), podTarget("p", "b"), podTarget("q", "c")
		require.NoError(t, d.set.SyncPod("q", []probe.Target{c}))
		require.NoError(t, d.set.SyncPod("p", []probe.Target{a, b}))
		d.linesAfter(time.Second)
		assert.Equal(t, []string{"p/a", "p/b", "q/c"}, probesWithValue(d.set))

		require.NoError(t, d.set.SyncPod("p", []probe.Target{a, b}))
		require.NoError(t, d.set.SyncPod("q", []probe.Target{c}))
		assert.Empty(t, d.linesAfter(time.Second), "unchanged targets change nothing")

		a.ContainerID = "a2"
		require.NoError(t, d.set.SyncPod("p", []probe.Target{a}))
		assert.Equal(t, []string{
			"2s a Readiness a2 failure", "2s b Readiness removed",
			"2s a Readiness a2 success", "2s a probed success after 0s",
		}, d.linesAfter(time.Second))

		require.NoError(t, d.set.SyncPod("p", nil))
		require.NoError(t, d.set.SyncPod("nobody", nil))
		assert.Equal(t, []string{"3s a Readiness removed"}, d.linesAfter(time.Second))
		assert.Equal(t, 1, d.set.Status().Targets)

		require.NoError(t, d.set.SyncPod("p", []probe.Target{b}), "the removed pod is added again")
		d.linesAfter(0)
		require.NoError(t, d.set.Sync(nil), "Sync removes the pods of SyncPod too")
		assert.ElementsMatch(t, []string{"4s b Readiness removed", "4s c Readiness removed"}, d.linesAfter(0))
		assert.Equal(t, probe.Status{}, d.set.Status())
	})
}

func TestSyncPodRejectsTargetsOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		require.NoError(t, d.set.Sync([]probe.Target{podTarget("q", "c")}))
		bad := podTarget("p", "bad")
		bad.Spec.Timeout = -1
		err := d.set.SyncPod("p", []probe.Target{podTarget("p", "a"), podTarget("q", "b"), bad, podTarget("p", "a"), podTarget("", "d")})
		assert.EqualError(t, err, `Readiness probe of container "b" of pod "q": field PodUID: "q" is not "p", the pod that is synced
Readiness probe of container "bad" of pod "p": field Timeout: -1ns is negative
Readiness probe of container "a" of pod "p": has two targets
Readiness probe of container "d" of pod "": field PodUID: is empty`)
		d.linesAfter(time.Second)
		assert.Equal(t, []string{"p/a", "q/c"}, probesWithValue(d.set))
	})
}

// Several requests before the next step have the effect of the same requests one by one.
func TestRequestsBeforeRunAreAppliedInOrder(t *testing.T) {
	node := func(targets ...probe.Target) func(*probe.Set) error {
		return func(s *probe.Set) error { return s.Sync(targets) }
	}
	pod := func(uid string, targets ...probe.Target) func(*probe.Set) error {
		return func(s *probe.Set) error { return s.SyncPod(uid, targets) }
	}
	all := node(podTarget("p", "a"), podTarget("q", "c"))
	for name, test := range map[string]struct {
		requests []func(*probe.Set) error
		want     []string
	}{
		"all pods, then one pod":     {[]func(*probe.Set) error{all, pod("p", podTarget("p", "b"))}, []string{"p/b", "q/c"}},
		"all pods, then one removed": {[]func(*probe.Set) error{all, pod("p")}, []string{"q/c"}},
		"all pods, then another pod": {[]func(*probe.Set) error{all, pod("r", podTarget("r", "d"))}, []string{"p/a", "q/c", "r/d"}},
		"pods, then all pods":        {[]func(*probe.Set) error{pod("p", podTarget("p", "b")), pod("r", podTarget("r", "d")), all}, []string{"p/a", "q/c"}},
		"one pod twice":              {[]func(*probe.Set) error{pod("p", podTarget("p", "a")), pod("p", podTarget("p", "b"))}, []string{"p/b"}},
		"pod removed and added":      {[]func(*probe.Set) error{all, pod("p"), pod("p", podTarget("p", "b"))}, []string{"p/b", "q/c"}},
		"pod, all pods, pod":         {[]func(*probe.Set) error{pod("p", podTarget("p", "b")), all, pod("p", podTarget("p", "d"))}, []string{"p/d", "q/c"}},
		"no pods, then one pod":      {[]func(*probe.Set) error{all, node(), pod("p", podTarget("p", "b"))}, []string{"p/b"}},
		"one target kept, one added": {[]func(*probe.Set) error{all, pod("q", podTarget("q", "c"), podTarget("q", "d"))}, []string{"p/a", "q/c", "q/d"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newRecorder(probe.Options{})
				for _, request := range test.requests {
					require.NoError(t, request(d.set))
				}
				d.run(t)
				d.linesAfter(time.Second)
				assert.Equal(t, test.want, probesWithValue(d.set))
			})
		})
	}
}

// For any batching of requests, the last targets of each pod are probed.
func TestLastRequestOfEachPodCounts(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRandomRequests(t, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func runRandomRequests(t *testing.T, rnd *rand.Rand) {
	d := startRecorder(t, probe.Options{})
	said := make(map[string][]probe.Target) // expected targets by pod
	some := func(pod string) (targets []probe.Target) {
		for _, name := range []string{"a", "b", "c"} {
			if rnd.IntN(2) > 0 {
				targets = append(targets, podTarget(pod, name))
			}
		}
		return targets
	}
	for range 200 {
		if rnd.IntN(5) == 0 {
			clear(said)
			for _, pod := range []string{"p", "q", "r"} {
				said[pod] = some(pod)
			}
			require.NoError(t, d.set.Sync(slices.Concat(slices.Collect(maps.Values(said))...)))
		} else {
			pod := []string{"p", "q", "r"}[rnd.IntN(3)]
			said[pod] = some(pod)
			require.NoError(t, d.set.SyncPod(pod, said[pod]))
		}
		if rnd.IntN(3) > 0 {
			continue
		}
		synctest.Wait()
		var want []string
		for pod, targets := range said {
			for _, target := range targets {
				want = append(want, pod+"/"+target.Container)
			}
		}
		slices.Sort(want)
		require.Equal(t, want, probesWithValue(d.set))
		require.Equal(t, len(want), d.set.Status().Targets)
	}
}

// podChanger repeatedly changes one pod of many and waits until the set has applied the change.
type podChanger struct {
	set     *probe.Set
	target  probe.Target
	flips   int
	changed chan struct{}
}

// newPodChanger starts a set with many pods, none of which is probed.
func newPodChanger(t testing.TB, pods int) *podChanger {
	f := &podChanger{changed: make(chan struct{}, pods+1)}
	f.set = probe.NewSet(probe.Options{Hooks: probe.Hooks{ValueChanged: func(probe.Key, probe.Value) { f.changed <- struct{}{} }}})
	targets := manyTargets(pods)
	for i := range targets {
		targets[i].Spec.InitialDelay = time.Hour
	}
	f.target = targets[0]
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, f.set.Run(ctx)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	require.NoError(t, f.set.Sync(targets))
	for range pods {
		<-f.changed
	}
	return f
}

func (f *podChanger) changePod(t testing.TB) {
	f.flips++
	f.target.ContainerID = [2]string{"x", "y"}[f.flips%2]
	require.NoError(t, f.set.SyncPod(f.target.PodUID, []probe.Target{f.target}))
	<-f.changed
}

// BenchmarkSyncPod measures a change of one pod of many, from the call to its hook.
func BenchmarkSyncPod(b *testing.B) {
	for _, pods := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			f := newPodChanger(b, pods)
			b.ReportAllocs()
			for b.Loop() {
				f.changePod(b)
			}
		})
	}
}
