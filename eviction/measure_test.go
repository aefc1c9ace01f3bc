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

// late is a node whose slow measurements ignore their context. The result has the state at the start of the call.
type late struct {
	*evictiontest.Node
	takes func(call int32) time.Duration
	calls atomic.Int32
}

func (l *late) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	list, err := l.Node.Candidates(ctx)
	time.Sleep(l.takes(l.calls.Add(1)))
	return list, err
}

func always(d time.Duration) func(int32) time.Duration {
	return func(int32) time.Duration { return d }
}

// Signals are read while pods are being measured.
func TestSignalsReadDuringMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &late{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi}), takes: always(9 * time.Second)}
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, gi-50*mi, 0)})
		reads := atomic.Int32{}
		e := start(t, node, node, eviction.Options{Rules: memoryRules(), Hooks: eviction.Hooks{Observed: func(eviction.Observation) { reads.Add(1) }}})
		time.Sleep(8500 * time.Millisecond)
		require.EqualValues(t, 9, reads.Load())
		require.EqualValues(t, 1, node.calls.Load())
		require.Equal(t, []eviction.Condition{eviction.MemoryPressure}, e.Status().Conditions)
		require.Empty(t, node.EventUIDs("evict"))
		time.Sleep(600 * time.Millisecond)
		require.Equal(t, []string{"a"}, node.EventUIDs("evict"), "pods are evicted as soon as they are measured")
	})
}

// Caches are reclaimed while pods are being measured.
func TestCachesReclaimedDuringMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &late{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi, Cache: 600 * mi}), takes: always(9 * time.Second)}
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, 350*mi, 0)})
		start(t, node, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(time.Second)
		require.Equal(t, []string{"memory.available"}, node.EventUIDs("reclaim"))
		time.Sleep(time.Minute)
		require.Empty(t, node.EventUIDs("evict"))
	})
}

// If pods are measured quickly, the decision does not wait for the next pass.
func TestFastMeasurementDecidesInSamePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &late{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi}), takes: always(50 * time.Millisecond)}
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, gi-50*mi, 0)})
		began := time.Now()
		start(t, node, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(time.Second)
		require.Equal(t, evictiontest.Event{Time: began.Add(50 * time.Millisecond), Kind: "evict", UID: "a"}, node.Events()[0])
	})
}

// A result after the timeout is ignored, and no second call starts before it.
func TestLateMeasurementIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &late{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi}), takes: func(call int32) time.Duration {
			return map[bool]time.Duration{true: 15500 * time.Millisecond}[call == 1]
		}}
		node.StartPod(evictiontest.Pod{Candidate: candidate("gone", 0, 500*mi, 0)})
		node.StartPod(evictiontest.Pod{Candidate: candidate("a", 0, 450*mi, 0)})
		e := start(t, node, node, eviction.Options{Rules: memoryRules()})
		time.Sleep(time.Second)
		require.NoError(t, node.Kill(t.Context(), "gone"))
		big := candidate("big", 0, 510*mi, 0)
		node.StartPod(evictiontest.Pod{Candidate: big})
		time.Sleep(12 * time.Second)
		require.ErrorContains(t, e.Status().Err, "the previous call has not returned")
		require.EqualValues(t, 1, node.calls.Load())
		require.Empty(t, node.EventUIDs("evict"))
		time.Sleep(4 * time.Second)
		require.Equal(t, []string{"big"}, node.EventUIDs("evict"))
	})
}

// A measurement that started before a pod terminated includes this pod and is ignored.
func TestMeasurementIgnoredAfterPodTerminated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &late{Node: evictiontest.NewNode(evictiontest.Options{Memory: gi, KillDelay: 11 * time.Second}), takes: always(3 * time.Second)}
		a := eater(0)
		a.UID, a.Memory = "a", 400*mi
		b := eater(0)
		b.UID, b.Memory = "b", 300*mi
		c := eater(mi)
		c.UID, c.Memory, c.Critical = "c", 250*mi, true
		node.StartPod(a)
		node.StartPod(b)
		node.StartPod(c)
		start(t, node, node, eviction.Options{Rules: memoryRules(), NoKill: true})
		time.Sleep(15500 * time.Millisecond) // pods are measured again from 13 s to 16 s; a terminates after 15 s
		require.Equal(t, []string{"a"}, node.EventUIDs("gone"))
		require.EqualValues(t, 2, node.calls.Load())
		node.StartPod(evictiontest.Pod{Candidate: candidate("d", 0, 400*mi, 500*mi)})
		time.Sleep(4 * time.Second)
		require.Equal(t, []string{"a", "b"}, node.EventUIDs("evict"))
	})
}
