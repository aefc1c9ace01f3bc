// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
)

// rounds returns the number of random nodes on which each property is checked; it is larger with NODEAGENT_SOAK=1.
func rounds() int {
	if os.Getenv("NODEAGENT_SOAK") != "" {
		return 100_000
	}
	return 2_000
}

// randomSignals are the signals of random thresholds.
var randomSignals = []eviction.Signal{
	eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree,
	eviction.ImageFSAvailable, eviction.ImageFSInodesFree, eviction.ContainerFSAvailable, eviction.ContainerFSInodesFree, eviction.PIDAvailable,
}

// randomPods returns n pods with few distinct numbers, so that many pods have equal fields.
func randomPods(r *rand.Rand, n int) (pods []eviction.Candidate) {
	for i := range n {
		small := func() int64 { return r.Int64N(4) }
		pods = append(pods, eviction.Candidate{
			UID: fmt.Sprint(i), Priority: int32(small() - 1), Critical: r.IntN(4) == 0, Measured: r.IntN(6) > 0, Memory: small(), Swap: small(), MemoryRequest: small(),
			Tasks: small(), Rootfs: eviction.Usage{Bytes: small(), Inodes: small()}, Logs: eviction.Usage{Bytes: small(), Inodes: small()},
			Volumes: eviction.Usage{Bytes: small(), Inodes: small()}, StorageRequest: small(), HasGracePeriod: r.IntN(2) == 0,
			GracePeriod: time.Duration(small()) * time.Second,
		})
	}
	return pods
}

// Each ranking is a total order: it does not depend on the input order, and equals a sort that compares each pair.
func TestRankingIsTotalOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds() {
		pods := randomPods(r, r.IntN(8))
		options := eviction.RankOptions{Layout: eviction.Layout(r.IntN(3)), IgnoreSwap: r.IntN(2) == 0}
		signal := randomSignals[r.IntN(len(randomSignals))]
		ranker := eviction.NewRanker(options)
		ranked := ranker.Rank(signal, slices.Clone(pods))
		require.ElementsMatch(t, pods, ranked)

		shuffled := slices.Clone(pods)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		require.Equal(t, ranked, ranker.Rank(signal, shuffled))

		var naive []eviction.Candidate // insertion sort: each pod is inserted before the first one that it precedes
		for _, p := range pods {
			at := slices.IndexFunc(naive, func(q eviction.Candidate) bool {
				return ranker.Rank(signal, []eviction.Candidate{q, p})[0].UID == p.UID
			})
			if at < 0 {
				at = len(naive)
			}
			naive = slices.Insert(naive, at, p)
		}
		require.Equal(t, len(ranked), len(naive))
		for i := range naive {
			require.Equal(t, naive[i], ranked[i])
		}
	}
}

// randomRules returns random thresholds.
func randomRules(r *rand.Rand) eviction.Rules {
	rules := eviction.Rules{MaxGracePeriod: time.Duration(r.IntN(20)) * time.Second, NoLocalStorage: r.IntN(2) == 0}
	for _, s := range randomSignals {
		for range r.IntN(3) {
			t := eviction.Threshold{Signal: s, Value: eviction.Amount{Absolute: 1 + r.Int64N(50)}}
			if r.IntN(2) == 0 {
				t.Value = eviction.Amount{Fraction: r.Float32() / 2}
			}
			if r.IntN(3) == 0 {
				t.GracePeriod = time.Duration(r.IntN(5)) * time.Second
			}
			if r.IntN(3) == 0 {
				t.MinReclaim = eviction.Amount{Absolute: r.Int64N(30)}
			}
			rules.Thresholds = append(rules.Thresholds, t)
		}
	}
	if r.IntN(2) == 0 {
		rules = rules.Kubelet()
	}
	return rules
}

// randomReadings returns readings of most signals, some outdated and some invalid.
func randomReadings(r *rand.Rand, now time.Time, before map[eviction.Signal]time.Time) (list []eviction.Reading) {
	for _, s := range randomSignals {
		if r.IntN(5) == 0 {
			continue
		}
		reading := eviction.Reading{Signal: s, Available: r.Int64N(101), Capacity: 100, Time: now, Reclaimable: r.Int64N(50)}
		switch r.IntN(8) {
		case 0:
			reading.Time = before[s]
		case 1:
			reading.Time = time.Time{}
		case 2:
			reading.Available = r.Int64() - r.Int64()
		case 3:
			reading.Capacity = r.Int64N(3) - 1
		}
		if reading.Capacity > 0 && reading.Available <= reading.Capacity {
			before[s] = reading.Time // signals without a reading stay out of before
		}
		list = append(list, reading)
	}
	return list
}

// No critical pod is evicted, at most one pod per pass and threshold, and none because of outdated or missing readings. Equal
// arguments give equal decisions, no argument changes, and Wake is always set.
func TestDecideInvariants(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range rounds() / 10 {
		policy, err := eviction.NewPolicy(randomRules(r))
		require.NoError(t, err)
		now, state, before := time.Unix(1e9, 0), eviction.State{}, map[eviction.Signal]time.Time{}
		layout := eviction.Layout(r.IntN(3))
		var reclaim *eviction.Reclaim
		var evicting []string
		pods := randomPods(r, r.IntN(6))
		for range 20 {
			now = now.Add(time.Duration(r.IntN(12000)) * time.Millisecond)
			if r.IntN(40) == 0 {
				now = now.Add(-time.Hour)
			}
			old := maps.Clone(before)
			o := eviction.Observation{Layout: layout, Readings: randomReadings(r, now, before)}
			d := decideTwice(t, policy, state, o, pods, now)
			require.True(t, d.Wake.After(now) && !d.Wake.After(now.Add(10*time.Second)), "wakes at %s", d.Wake.Sub(now))
			thresholds := 0
			for _, e := range d.Evict {
				pod := pods[slices.IndexFunc(pods, func(c eviction.Candidate) bool { return c.UID == e.UID })]
				require.False(t, pod.Critical)
				require.NotContains(t, evicting, e.UID)
				require.GreaterOrEqual(t, e.Grace, time.Second)
				if pod.ExceededLimit == nil {
					thresholds++
					require.Empty(t, evicting, "a threshold evicts only while no other pod is being evicted")
					reading := o.Readings[slices.IndexFunc(o.Readings, func(r eviction.Reading) bool { return r.Signal == e.Signal })]
					require.True(t, reading.Time.IsZero() || !reading.Time.Equal(old[e.Signal]), "an eviction needs a new reading")
					require.Contains(t, d.Conditions, e.Signal.Condition())
				}
			}
			require.LessOrEqual(t, thresholds, 1)
			state = d.State
			for _, e := range d.Evict {
				evicting = append(evicting, e.UID)
			}
			if d.Reclaim != nil {
				require.Empty(t, d.Evict)
				reclaim = d.Reclaim
			}
			if reclaim != nil && r.IntN(2) == 0 {
				state, reclaim = state.Reclaimed(*reclaim, r.Int64N(100), now), nil
			}
			for _, uid := range evicting { // the pods terminate before their deadline
				state = state.Evicted(uid)
				pods = slices.DeleteFunc(slices.Clone(pods), func(c eviction.Candidate) bool { return c.UID == uid })
			}
			evicting = nil
		}
	}
}

// decideTwice calls Decide as an Evictor does, and fails the test if a second call with equal arguments decides otherwise.
func decideTwice(t *testing.T, p *eviction.Policy, s eviction.State, o eviction.Observation, pods []eviction.Candidate, now time.Time) eviction.Decision {
	d := p.Decide(s, o, now)
	require.Equal(t, d, p.Decide(s, o, now))
	if !d.NeedsCandidates {
		return d
	}
	require.Equal(t, s, d.State)
	require.Empty(t, d.Evict)
	require.Nil(t, d.Reclaim)
	o.Measuring = true
	meanwhile := p.Decide(s, o, now)
	require.False(t, meanwhile.NeedsCandidates)
	require.Empty(t, meanwhile.Evict)
	require.Equal(t, d.Conditions, meanwhile.Conditions)
	require.True(t, meanwhile.Wake.After(now) && !meanwhile.Wake.After(now.Add(10*time.Second)), "wakes at %s", meanwhile.Wake.Sub(now))
	o.Candidates, o.Measured, o.Measuring = slices.Clone(pods), true, false
	d = p.Decide(s, o, now)
	require.False(t, d.NeedsCandidates)
	if meanwhile.Reclaim == nil {
		require.Equal(t, d.Evict, p.Decide(meanwhile.State, o, now).Evict, "waiting for the candidates must not change the decision")
	}
	require.Equal(t, d, p.Decide(s, o, now))
	require.Equal(t, pods, o.Candidates, "Decide must not modify the candidates")
	return d
}

// manyPods returns n pods of a node without pressure.
func manyPods(n int) []eviction.Candidate {
	r := rand.New(rand.NewPCG(5, 6))
	pods := make([]eviction.Candidate, n)
	for i := range pods {
		pods[i] = eviction.Candidate{
			UID: fmt.Sprintf("%08x", r.Uint32()), Measured: true, Priority: r.Int32N(3), Memory: r.Int64N(gi), MemoryRequest: r.Int64N(gi),
			Tasks: r.Int64N(100), Rootfs: eviction.Usage{Bytes: r.Int64N(gi)}, Logs: eviction.Usage{Bytes: r.Int64N(gi)},
		}
	}
	return pods
}

// atRest returns an observation of a node without pressure on which pods run.
func atRest(pods []eviction.Candidate) eviction.Observation {
	o := eviction.Observation{Candidates: pods, Measured: true}
	for _, s := range randomSignals {
		o.Readings = append(o.Readings, eviction.Reading{Signal: s, Available: 90 * gi, Capacity: 100 * gi})
	}
	return o
}

func defaultPolicy(tb testing.TB) *eviction.Policy {
	list, err := eviction.ParseThresholds(eviction.Config{EnforcePods: true})
	require.NoError(tb, err)
	p, err := eviction.NewPolicy(eviction.Rules{Thresholds: list})
	require.NoError(tb, err)
	return p
}

// A pass without actions does not allocate memory, and a ranking allocates once.
func TestDecideAndRankAllocations(t *testing.T) {
	p, o, now := defaultPolicy(t), atRest(manyPods(500)), time.Now()
	state := p.Decide(eviction.State{}, o, now).State
	require.Zero(t, testing.AllocsPerRun(100, func() { p.Decide(state, o, now.Add(time.Second)) }))

	ranker, pods := eviction.NewRanker(eviction.RankOptions{}), manyPods(1000)
	for _, s := range randomSignals {
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { ranker.Rank(s, pods) }), 1.0, s)
	}
}

func BenchmarkRank(b *testing.B) {
	pods := manyPods(10_000)
	for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.PIDAvailable, eviction.NodeFSAvailable} {
		b.Run(string(s), func(b *testing.B) {
			ranker, work := eviction.NewRanker(eviction.RankOptions{}), make([]eviction.Candidate, len(pods))
			b.ReportAllocs()
			for b.Loop() {
				copy(work, pods)
				ranker.Rank(s, work)
			}
		})
	}
}

func BenchmarkDecideAtRest(b *testing.B) {
	p, o, now := defaultPolicy(b), atRest(manyPods(500)), time.Now()
	state := p.Decide(eviction.State{}, o, now).State
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(state, o, now)
	}
}
