// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// unresponsive is a prober of a server that accepts connections and never responds.
func unresponsive(ctx context.Context) (probe.Result, error) {
	<-ctx.Done()
	return probe.Result{Outcome: probe.Failure, Output: "timeout"}, nil
}

// unresponsivePod returns the targets of a pod whose containers never respond.
func unresponsivePod(uid string, probes int, timeout time.Duration) []probe.Target {
	all := make([]probe.Target, probes)
	for i := range all {
		all[i] = runningTarget(fmt.Sprintf("c%d", i), unresponsive)
		all[i].PodUID = uid
		all[i].Spec.Period, all[i].Spec.Timeout = time.Second, timeout
	}
	return all
}

// Pods whose servers never respond delay the probes of another pod by about a second, with any timeouts, and use a bounded
// number of goroutines.
func TestUnresponsivePodsDelayOtherPodsBoundedly(t *testing.T) {
	const longest = math.MaxInt32 * time.Second // longest timeout of the API
	for _, test := range []struct {
		pods, probes int
		timeout      time.Duration
		most         int // most calls in flight
	}{
		{pods: 1, probes: 256, timeout: longest, most: 64},
		{pods: 4, probes: 64, timeout: longest, most: 256},
		{pods: 100, probes: 256, timeout: longest, most: 1024 + 4*100},
		{pods: 100, probes: 256, timeout: time.Second, most: 1024 + 4*100},
		{pods: 100, probes: 256, timeout: 30 * time.Second, most: 1024 + 4*100},
	} {
		t.Run(fmt.Sprintf("%d pods with %d probes of %v", test.pods, test.probes, test.timeout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var delayed time.Duration
				probed := 0
				set := probe.NewSet(probe.Options{Rand: func() float64 { return 0 }, Hooks: probe.Hooks{
					ProbeDelayed: func(k probe.Key, by time.Duration) {
						if k.PodUID == "good" {
							delayed = max(delayed, by)
						}
					},
					ProbeFinished: func(k probe.Key, r probe.Result, err error, _ time.Duration) {
						if k.PodUID == "good" {
							probed++
							assert.NoError(t, err)
							assert.Equal(t, probe.Success, r.Outcome)
						}
					},
				}})
				for i := range test.pods {
					uid := fmt.Sprintf("silent%d", i)
					require.NoError(t, set.SyncPod(uid, unresponsivePod(uid, test.probes, test.timeout)))
				}
				before := runtime.NumGoroutine()
				go func() { _ = set.Run(t.Context()) }()
				time.Sleep(5 * time.Second)
				good := []probe.Target{runningTarget("a", succeed), runningTarget("b", succeed)}
				for i := range good {
					good[i].PodUID, good[i].Spec.Period = "good", time.Second
				}
				require.NoError(t, set.SyncPod("good", good))
				most := 0
				for range 60 {
					time.Sleep(time.Second)
					synctest.Wait()
					s := set.Status()
					assert.LessOrEqual(t, s.InFlight, 256)
					most = max(most, s.InFlight+s.Slow+s.Hung)
					assert.LessOrEqual(t, runtime.NumGoroutine()-before, test.most+2)
				}
				t.Logf("delayed by %v, at most %d in flight", delayed, most)
				assert.LessOrEqual(t, delayed, 1100*time.Millisecond)
				assert.LessOrEqual(t, most, test.most)
				assert.InDelta(t, 2*60, probed, 10)
			})
		})
	}
}

// A probe that no longer counts against Options.Parallel still ends at its timeout.
func TestSlowProbeEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Parallel: 1})
		a := runningTarget("a", unresponsive)
		a.Spec.Timeout, a.Spec.FailureThreshold = 7*time.Second, 1
		b := runningTarget("b", delayedProber(3*time.Second, probe.Result{Outcome: probe.Success}, nil))
		b.Spec.Timeout = 5 * time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		d.linesAfter(time.Second)
		assert.Equal(t, probe.Status{Targets: 2, InFlight: 1, Waiting: 1}, d.set.Status())
		assert.Equal(t, []string{"1.1s b waited 1.1s"}, d.linesAfter(2*time.Second))
		assert.Equal(t, probe.Status{Targets: 2, Slow: 2, Delayed: 1}, d.set.Status())
		assert.Equal(t, []string{
			"4.1s b Readiness b1 success", "4.1s b probed success after 3s", "7s a probed failure after 7s",
		}, d.linesAfter(6*time.Second))
		assert.Equal(t, probe.Status{Targets: 2, Delayed: 1}, d.set.Status())
	})
}

// The prober call of a terminated container counts against the limit of its pod until it returns.
func TestCancelledProberCountsUntilItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{PodParallel: 2})
		deaf := runningTarget("a", func(context.Context) (probe.Result, error) {
			time.Sleep(20 * time.Second)
			return probe.Result{Outcome: probe.Success}, nil
		})
		goroutines := runtime.NumGoroutine()
		for i := range 5 {
			deaf.ContainerID = fmt.Sprint("a", i)
			require.NoError(t, d.set.Sync([]probe.Target{deaf}))
			d.linesAfter(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
		assert.Equal(t, probe.Status{Targets: 1, Waiting: 1}, d.set.Status())
		require.NoError(t, d.set.Sync(nil))
		d.linesAfter(100 * time.Millisecond)
		require.NoError(t, d.set.Sync([]probe.Target{deaf}), "a pod that is added again has the same probers")
		d.linesAfter(time.Second)
		assert.Equal(t, probe.Status{Targets: 1, Waiting: 1}, d.set.Status())
		d.linesAfter(20 * time.Second)
		assert.Zero(t, d.set.Status().Waiting)
	})
}
