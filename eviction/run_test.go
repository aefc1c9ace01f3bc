// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

func bytes(n int64) eviction.Amount { return eviction.Amount{Absolute: n, Format: eviction.BinarySI} }

// memoryRules returns rules that keep 100Mi of memory free.
func memoryRules() eviction.Rules {
	return eviction.Rules{Thresholds: []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: bytes(100 * mi)}}}
}

// start runs an evictor on a node in a bubble until the test ends.
func start(t *testing.T, observer eviction.Observer, actor eviction.Actor, o eviction.Options) *eviction.Evictor {
	t.Helper()
	e, err := eviction.New(observer, actor, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
		require.ErrorContains(t, e.Run(t.Context()), "second call of Run")
	})
	return e
}

// candidate returns a measured pod with a priority, and its memory usage and request in bytes.
func candidate(uid string, priority int32, memory, request int64) eviction.Candidate {
	return eviction.Candidate{UID: uid, Name: "default/" + uid, Priority: priority, Memory: memory, MemoryRequest: request}
}

// eater returns a pod that allocates rate bytes of memory per second and ignores the stop signal.
func eater(rate int64) evictiontest.Pod {
	return evictiontest.Pod{Candidate: candidate("eater", 0, 0, 0), MemoryPerSecond: rate, StopTime: time.Hour}
}

// A pod that uses up the memory is evicted before the kernel kills, however fast it grows.
func TestPodEvictedBeforeOOMKill(t *testing.T) {
	for _, rate := range []int64{mi, 20 * mi, 50 * mi, 100 * mi} {
		synctest.Test(t, func(t *testing.T) {
			node := evictiontest.NewNode(evictiontest.Options{Memory: gi, KillDelay: time.Second})
			node.StartPod(evictiontest.Pod{Candidate: candidate("other", -5, 200*mi, 300*mi)})
			e := start(t, node, node, eviction.Options{Rules: memoryRules()})
			time.Sleep(3 * time.Second)
			node.StartPod(eater(rate))
			time.Sleep(20 * time.Minute)
			require.Equal(t, []string{"eater"}, node.EventUIDs("evict"), "%d MiB/s", rate/mi)
			require.Equal(t, []string{"eater"}, node.EventUIDs("limit"))
			require.Empty(t, node.EventUIDs("oom"))
			require.Equal(t, []string{"other"}, node.RunningPods())
			require.NoError(t, e.Status().Err)
			require.Empty(t, e.Status().Conditions)
		})
	}
}

// With the kubelet's rules the kernel kills this pod first.
func TestKubeletRulesEvictAfterOOMKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi, KillDelay: time.Second})
		start(t, node, node, eviction.Options{Rules: memoryRules().Kubelet(), NoKill: true})
		time.Sleep(3 * time.Second)
		node.StartPod(eater(200 * mi))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"eater"}, node.EventUIDs("oom"))
		require.Empty(t, node.EventUIDs("evict"))
	})
}

// A hung runtime prevents neither the kill of a pod nor the next eviction.
func TestPodKilledWhileRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.HangRuntime(true)
		second := eater(10 * mi)
		second.UID = "second"
		node.StartPod(eater(50 * mi))
		node.StartPod(second)
		var evicted []string
		var mu sync.Mutex
		start(t, node, node, eviction.Options{Rules: memoryRules(), Hooks: eviction.Hooks{Evicted: func(e eviction.Eviction, err error) {
			mu.Lock()
			defer mu.Unlock()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			evicted = append(evicted, e.UID)
		}}})
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"eater", "second"}, node.EventUIDs("kill"))
		require.Empty(t, node.EventUIDs("oom"))
		require.Empty(t, node.RunningPods())
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"eater", "second"}, evicted)
	})
}

// With NoKill, only the runtime kills pods.
func TestNoKillLeavesKillsToRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.HangRuntime(true)
		node.StartPod(eater(10 * mi))
		start(t, node, node, eviction.Options{Rules: memoryRules(), NoKill: true})
		time.Sleep(10 * time.Minute)
		require.Empty(t, node.EventUIDs("kill"))
		require.Empty(t, node.EventUIDs("limit"))
		require.Equal(t, []string{"eater"}, node.EventUIDs("oom"))
	})
}

// Caches are reclaimed before pods are evicted.
func TestCachesReclaimedBeforeEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi, Cache: 600 * mi})
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, 350*mi, 0)})
		e := start(t, node, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"memory.available"}, node.EventUIDs("reclaim"))
		require.Empty(t, node.EventUIDs("evict"))
		require.Equal(t, []eviction.Condition{eviction.MemoryPressure}, e.Status().Conditions)
		time.Sleep(5 * time.Minute)
		require.Empty(t, e.Status().Conditions)
	})
}

// After a reclaim of disk space the evictor waits for its effect.
func TestEvictionWaitsForFreedDisk(t *testing.T) {
	rules := eviction.Rules{Thresholds: []eviction.Threshold{{Signal: eviction.NodeFSAvailable, Value: eviction.Amount{Fraction: 0.1}}}}
	for _, test := range []struct {
		rules   eviction.Rules
		evicted []string
	}{{rules, nil}, {rules.Kubelet(), []string{"a"}}} {
		synctest.Test(t, func(t *testing.T) {
			node := evictiontest.NewNode(evictiontest.Options{NodeFS: 20 * gi, Unused: 10 * gi, FreeDelay: 12 * time.Second})
			node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a", Logs: eviction.Usage{Bytes: 9 * gi}}})
			start(t, node, node, eviction.Options{Rules: test.rules})
			time.Sleep(time.Minute)
			require.Equal(t, []string{"nodefs.available"}, node.EventUIDs("reclaim"))
			require.Equal(t, test.evicted, node.EventUIDs("evict"))
		})
	}
	synctest.Test(t, func(t *testing.T) { // a pod whose logs grow is evicted in spite of the reclaim
		node := evictiontest.NewNode(evictiontest.Options{NodeFS: 20 * gi, Unused: gi})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a"}, LogsPerSecond: 100 * mi})
		start(t, node, node, eviction.Options{Rules: rules})
		time.Sleep(10 * time.Minute)
		require.Equal(t, []string{"a"}, node.EventUIDs("evict"))
		require.Empty(t, node.RunningPods())
	})
}

// A fork bomb is evicted.
func TestForkBombIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{PIDs: 32768})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "bomb"}, TasksPerSecond: 4000})
		node.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "other", Tasks: 100}})
		start(t, node, node, eviction.Options{Rules: eviction.Rules{Thresholds: []eviction.Threshold{{Signal: eviction.PIDAvailable, Value: bytes(2000)}}}})
		time.Sleep(time.Minute)
		require.Equal(t, []string{"bomb"}, node.EventUIDs("evict"))
	})
}

// Wake starts an observation at once, at most every 100 ms.
func TestWakeObservesAtMostEvery100Milliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, passes := evictiontest.NewNode(evictiontest.Options{NodeFS: gi}), atomic.Int32{}
		rules := eviction.Rules{NoLocalStorage: true}
		e := start(t, node, node, eviction.Options{Rules: rules, Hooks: eviction.Hooks{Observed: func(eviction.Observation) { passes.Add(1) }}})
		time.Sleep(time.Second)
		require.EqualValues(t, 1, passes.Load(), "one pass a second far from the thresholds")
		e.Wake()
		synctest.Wait()
		require.EqualValues(t, 2, passes.Load())
		for range 100 {
			e.Wake()
			time.Sleep(10 * time.Millisecond)
		}
		require.InDelta(t, 12, passes.Load(), 1)
	})
}

// Failed passes are repeated with a back-off; a hung call is not repeated.
func TestFailedPassesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, gi-50*mi, 0)})
		node.FailObservations(errors.New("no cgroups"))
		var errs atomic.Int32
		e := start(t, node, node, eviction.Options{Rules: memoryRules(), Hooks: eviction.Hooks{Error: func(error) { errs.Add(1) }}})
		time.Sleep(time.Minute)
		require.InDelta(t, 8, errs.Load(), 2)
		require.ErrorContains(t, e.Status().Err, "no cgroups")
		require.Empty(t, node.EventUIDs("evict"))
		node.FailObservations(nil)
		time.Sleep(11 * time.Second)
		require.Equal(t, []string{"a"}, node.EventUIDs("evict"))
		require.NoError(t, e.Status().Err)
	})
}

// hanging is an observer whose Candidates hangs.
type hanging struct {
	*evictiontest.Node
	calls atomic.Int32
}

func (h *hanging) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	h.calls.Add(1)
	<-ctx.Done()
	time.Sleep(time.Hour)
	return nil, ctx.Err()
}

func TestHungObserverIsCalledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, gi-50*mi, 0)})
		h := &hanging{Node: node}
		e := start(t, h, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, h.calls.Load())
		require.ErrorContains(t, e.Status().Err, "the previous call has not returned")
		require.Equal(t, []eviction.Condition{eviction.MemoryPressure}, e.Status().Conditions, "conditions are reported while the measurement hangs")
		time.Sleep(2 * time.Hour)
		require.Greater(t, h.calls.Load(), int32(1))
	})
}

// failing is an actor whose first evictions fail.
type failing struct {
	*evictiontest.Node
	fails atomic.Int32
}

func (f *failing) Evict(ctx context.Context, e eviction.Eviction) error {
	if f.fails.Add(-1) >= 0 {
		return errors.New("not there yet")
	}
	return f.Node.Evict(ctx, e)
}

// A failed eviction is retried soon.
func TestFailedEvictionIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := evictiontest.NewNode(evictiontest.Options{Memory: gi})
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, gi-50*mi, 0)})
		f := &failing{Node: node}
		f.fails.Store(2)
		start(t, node, f, eviction.Options{Rules: memoryRules()})
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"a"}, node.RunningPods())
		time.Sleep(10 * time.Second)
		require.Empty(t, node.RunningPods())
	})
}

func TestNewRejectsMissingArguments(t *testing.T) {
	node := evictiontest.NewNode(evictiontest.Options{})
	_, err := eviction.New(nil, node, eviction.Options{})
	require.ErrorContains(t, err, "argument observer is nil: required")
	_, err = eviction.New(node, node, eviction.Options{Rules: eviction.Rules{FixedPeriod: -1, TransitionPeriod: -1, Thresholds: []eviction.Threshold{
		{Signal: "cpu.available"}, {Signal: eviction.PIDAvailable, GracePeriod: -1},
	}}})
	for _, text := range []string{"FixedPeriod: -1ns", "TransitionPeriod: -1ns", `"cpu.available" is not a signal`, "pid.available<0 for -1ns"} {
		require.ErrorContains(t, err, text)
	}
}
