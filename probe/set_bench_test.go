// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// manyTargets returns n targets that share no strings.
func manyTargets(n int) []probe.Target {
	all := make([]probe.Target, n)
	for i := range all {
		all[i] = runningTarget("web", succeed)
		all[i].PodUID = fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)
		all[i].ContainerID = fmt.Sprintf("containerd://%064d", i)
	}
	return all
}

// heapSize returns the bytes of heap and stacks in use.
func heapSize() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// A waiting probe needs less than 1 KiB including its names, and no goroutine.
func TestWaitingProbeNeedsLessThan1KiB(t *testing.T) {
	const n = 10_000
	before, goroutines := heapSize(), runtime.NumGoroutine()
	s := probe.NewSet(probe.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, s.Run(ctx)) })
	require.NoError(t, s.Sync(manyTargets(n)))
	require.Eventually(t, func() bool { return s.Status().Targets == n }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+3 }, 10*time.Second, time.Millisecond)
	each := int(heapSize()-before) / n
	t.Logf("%d bytes for each probe", each)
	assert.Less(t, each, 1024)
	cancel()
	wg.Wait()
	runtime.KeepAlive(s)
}

// BenchmarkProbe measures one probe in a set of 10,000 targets, without its prober.
func BenchmarkProbe(b *testing.B) {
	targets := manyTargets(10_000)
	for i := range targets {
		targets[i].Spec.Period = 10 * time.Millisecond // too short for all probes, so that the loop is never idle
	}
	done := make(chan struct{})
	left := b.N
	s := probe.NewSet(probe.Options{Hooks: probe.Hooks{ProbeFinished: func(probe.Key, probe.Result, error, time.Duration) {
		if left--; left == 0 {
			close(done)
		}
	}}})
	require.NoError(b, s.Sync(targets))
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	wg.Go(func() { assert.NoError(b, s.Run(ctx)) })
	<-done
	b.StopTimer()
	cancel()
	wg.Wait()
}

func BenchmarkSync(b *testing.B) {
	targets := manyTargets(10_000)
	s := probe.NewSet(probe.Options{})
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(b, s.Run(ctx)) })
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, s.Sync(targets))
	}
	cancel()
	wg.Wait()
}

// BenchmarkState measures recording a result and computing the next probe.
func BenchmarkState(b *testing.B) {
	now := time.Now()
	state := probe.NewState(now).UpdateTarget(runningTarget("a", succeed), probe.PreviousRun{AgentStart: now}, now)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(10 * time.Second)
		state = state.StartProbe(now).AddResult(probe.Success)
	}
}
