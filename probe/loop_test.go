// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// Probes that are due within 10 ms of each other start together, at the end of the 10 ms. A triggered probe does not wait.
func TestProbesDueWithin10msStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spread float64 // fraction of the period of ten seconds
		d := startRecorder(t, probe.Options{Rand: func() float64 { return spread }})
		var targets []probe.Target
		add := func(name string, at time.Duration) {
			spread = at.Seconds() / 10
			targets = append(targets, runningTarget(name, succeed))
			require.NoError(t, d.set.Sync(targets))
			synctest.Wait()
		}
		add("a", 100*time.Millisecond)
		add("b", 104*time.Millisecond)
		add("c", 110*time.Millisecond)
		add("d", 111*time.Millisecond)
		add("e", 140*time.Millisecond)
		d.linesAfter(99 * time.Millisecond)
		assert.ElementsMatch(t, []string{
			"100ms a Readiness a1 success", "100ms a probed success after 0s",
			"110ms b Readiness b1 success", "110ms b probed success after 0s",
			"110ms c Readiness c1 success", "110ms c probed success after 0s",
		}, d.linesAfter(13*time.Millisecond)) // 112ms
		d.set.Trigger(targets[0].Key)
		assert.ElementsMatch(t, []string{ // d is due and is probed together with a
			"112ms a probed success after 0s", "112ms d Readiness d1 success", "112ms d probed success after 0s",
		}, d.linesAfter(time.Millisecond)) // 113ms
		add("new", 0)
		assert.ElementsMatch(t, []string{
			"113ms new Readiness new1 failure", "113ms new Readiness new1 success", "113ms new probed success after 0s",
		}, d.linesAfter(26*time.Millisecond)) // 139ms
		assert.Equal(t, []string{"140ms e Readiness e1 success", "140ms e probed success after 0s"}, d.linesAfter(time.Millisecond))
		assert.Zero(t, d.set.Status().Delayed, "waiting for 10 ms is no delay")
	})
}

// Probes with the shortest period run on time, alone and with different due times.
func TestProbesKeepMinPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spread float64
		d := startRecorder(t, probe.Options{Rand: func() float64 { spread += 0.3; return spread }})
		var targets []probe.Target
		for _, name := range []string{"a", "b", "c"} {
			target := runningTarget(name, succeed)
			target.Spec.Period = probe.MinPeriod
			targets = append(targets, target)
		}
		require.NoError(t, d.set.Sync(targets)) // the first probes are due after 3, 6 and 9 ms
		d.linesAfter(50 * time.Millisecond)
		assert.ElementsMatch(t, []string{
			"53ms a probed success after 0s", "53ms b probed success after 0s", "53ms c probed success after 0s",
			"63ms a probed success after 0s", "63ms b probed success after 0s", "63ms c probed success after 0s",
		}, d.linesAfter(20*time.Millisecond))
		assert.Len(t, d.linesAfter(time.Second), 300)
	})
}

// After a late probe, the next one runs at its regular time again.
func TestLateProbeReturnsToItsTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		target := runningTarget("a", func(context.Context) (probe.Result, error) {
			at = append(at, time.Since(start)/time.Millisecond)
			return probe.Result{Outcome: probe.Success}, nil
		})
		target.Spec.Period = probe.MinPeriod
		s := probe.NewSet(probe.Options{
			Rand: func() float64 { return 0 },
			Hooks: probe.Hooks{ProbeFinished: func(probe.Key, probe.Result, error, time.Duration) {
				if len(at) == 1 {
					time.Sleep(13 * time.Millisecond) // a slow hook makes the next probe late
				}
			}},
		})
		require.NoError(t, s.Sync([]probe.Target{target}))
		ctx, cancel := context.WithTimeout(t.Context(), 45*time.Millisecond)
		defer cancel()
		require.NoError(t, s.Run(ctx))
		assert.Equal(t, []time.Duration{0, 13, 20, 30, 40}, at)
	})
}
