// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
)

// forgetful is an observer that does not report which pods are being evicted.
type forgetful struct{ *evictiontest.Node }

func (f forgetful) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	list, err := f.Node.Candidates(ctx)
	for i := range list {
		list[i].Evicting = false
	}
	return list, err
}

// A pod that has not terminated by its deadline is not selected again for five minutes, also without a Killer.
func TestVictimPastDeadlineNotSelectedFor5Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.HangRuntime(true)
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, 600*mi, 0)})
		node.StartPod(evictiontest.Pod{Candidate: candidate("b", 0, 380*mi, 0)})
		start(t, forgetful{node}, node, eviction.Options{Rules: memoryRules(), NoKill: true})
		time.Sleep(5*time.Minute + 30*time.Second)
		require.Equal(t, []string{"a", "b"}, node.EventUIDs("evict"))
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a", "b", "a"}, node.EventUIDs("evict"))
	})
}

// keeping is a node whose killed pods keep their disk usage until the runtime has removed them.
type keeping struct{ *evictiontest.Node }

func (keeping) Kill(context.Context, string) error { return nil }

// A pod that was killed while the runtime is slow keeps its disk usage: no other pod is evicted until the runtime has
// removed it.
func TestDiskVictimBlocksOthersUntilRuntimeRemovesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{NodeFS: 20 * gi, KillDelay: 25 * time.Second})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a", Logs: eviction.Usage{Bytes: 15 * gi}}, StopTime: time.Hour})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "b", Logs: eviction.Usage{Bytes: 4 * gi}}, StopTime: time.Hour})
		start(t, node, keeping{node}, eviction.Options{Rules: eviction.Rules{
			Thresholds: []eviction.Threshold{{Signal: eviction.NodeFSAvailable, Value: eviction.Amount{Fraction: 0.1}}},
		}})
		time.Sleep(5 * time.Minute)
		require.Equal(t, []string{"a"}, node.EventUIDs("evict"))
		require.Equal(t, []string{"b"}, node.RunningPods())
	})
}

// A pod whose eviction started before a restart of the agent delays other evictions only until the usual deadline, although
// its grace period is an hour.
func TestAdoptedVictimIsKilledAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		a := candidate("a", 0, 50*mi, 0)
		a.Evicting, a.GracePeriod, a.HasGracePeriod = true, time.Hour, true
		node.StartPod(evictiontest.Pod{Candidate: a})
		node.StartPod(evictiontest.Pod{Candidate: candidate("b", 0, 940*mi, 0)})
		start(t, node, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(9 * time.Second)
		require.Empty(t, node.EventUIDs("kill"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"a"}, node.EventUIDs("kill"))
		require.Equal(t, []string{"b"}, node.EventUIDs("evict"))
	})
}

// Without a Killer, the adopted eviction expires a little after the deadline.
func TestAdoptedVictimWithoutKillerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		a := candidate("a", 0, 50*mi, 0)
		a.Evicting, a.GracePeriod, a.HasGracePeriod = true, time.Hour, true
		node.StartPod(evictiontest.Pod{Candidate: a})
		node.StartPod(evictiontest.Pod{Candidate: candidate("b", 0, 940*mi, 0)})
		start(t, node, node, eviction.Options{Rules: memoryRules(), NoKill: true})
		time.Sleep(39 * time.Second)
		require.Empty(t, node.EventUIDs("evict"))
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"b"}, node.EventUIDs("evict"))
		require.Empty(t, node.EventUIDs("kill"))
	})
}

// slow is a node with slow measurements and reclaims.
type slow struct {
	*evictiontest.Node
	measure, reclaim time.Duration
}

func (s *slow) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	time.Sleep(s.measure)
	return s.Node.Candidates(ctx)
}

func (s *slow) Reclaim(ctx context.Context, r eviction.Reclaim) (int64, error) {
	time.Sleep(s.reclaim)
	return s.Node.Reclaim(ctx, r)
}

// The timeout of a reclaim starts with its call, not with the decision.
func TestReclaimTimeoutStartsWithCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &slow{evictiontest.NewNode(evictiontest.Options{Memory: gi, Cache: 600 * mi}), 2 * time.Second, 900 * time.Millisecond}
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, 350*mi, 0)})
		// The hook delays the call after the decision.
		hold := func(eviction.Signal, time.Duration) { time.Sleep(500 * time.Millisecond) }
		start(t, node, node, eviction.Options{Rules: memoryRules(), Hooks: eviction.Hooks{ThresholdMet: hold}})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"memory.available"}, node.EventUIDs("reclaim"))
		require.Empty(t, node.EventUIDs("evict"))
	})
}

// stubborn is a node whose first reclaim takes five minutes and ignores its context.
type stubborn struct {
	*evictiontest.Node
	calls, running, most atomic.Int32
}

func (s *stubborn) Reclaim(ctx context.Context, r eviction.Reclaim) (int64, error) {
	s.most.Store(max(s.most.Load(), s.running.Add(1)))
	defer s.running.Add(-1)
	if s.calls.Add(1) == 1 {
		time.Sleep(5 * time.Minute)
	}
	return s.Node.Reclaim(ctx, r)
}

// diskRules returns rules that keep a tenth of the disk free.
func diskRules() eviction.Rules {
	return eviction.Rules{Thresholds: []eviction.Threshold{{Signal: eviction.NodeFSAvailable, Value: eviction.Amount{Fraction: 0.1}}}}
}

// While a reclaim hangs, no other reclaim of its resource starts, and pods are evicted without a reclaim.
func TestHungReclaimIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &stubborn{Node: evictiontest.NewNode(evictiontest.Options{NodeFS: 20 * gi})}
		for _, uid := range []string{"a", "b", "c"} {
			node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: uid, Logs: eviction.Usage{Bytes: gi}}})
		}
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "critical", Critical: true, Logs: eviction.Usage{Bytes: 33 * gi / 2}}})
		var refused atomic.Int32
		start(t, node, node, eviction.Options{Rules: diskRules(), Hooks: eviction.Hooks{Reclaimed: func(_ eviction.Reclaim, _ int64, err error) {
			if err != nil {
				refused.Add(1)
			}
		}}})
		time.Sleep(4*time.Minute + 50*time.Second)
		require.Equal(t, []string{"a", "b"}, node.EventUIDs("evict"))
		require.EqualValues(t, 1, node.calls.Load())
		require.Positive(t, refused.Load())
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "d", Logs: eviction.Usage{Bytes: gi}}})
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, node.most.Load())
	})
}

// The late result of a reclaim does not end the next one.
func TestLateReclaimResultIsIgnored(t *testing.T) {
	policy, err := eviction.NewPolicy(diskRules())
	require.NoError(t, err)
	now, state := time.Unix(1e9, 0), eviction.State{}
	decide := func(after time.Duration) eviction.Decision {
		now = now.Add(after)
		d := policy.Decide(state, eviction.Observation{
			Readings:   []eviction.Reading{{Signal: eviction.NodeFSAvailable, Available: gi, Capacity: 20 * gi}},
			Candidates: []eviction.Candidate{{UID: "a"}, {UID: "b"}}, Measured: true,
		}, now)
		state = d.State
		return d
	}
	first := decide(0).Reclaim
	require.NotNil(t, first)
	evicted := decide(2 * time.Minute).Evict
	require.Len(t, evicted, 1)
	state = state.Evicted(evicted[0].UID)
	second := decide(time.Second).Reclaim
	require.NotNil(t, second)
	state = state.Reclaimed(*first, 0, now)
	require.Empty(t, decide(time.Second).Evict, "no pod is evicted before the result of the second reclaim")
	state = state.Reclaimed(*second, 0, now)
	require.Len(t, decide(time.Second).Evict, 1)
}
