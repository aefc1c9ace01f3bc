// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// Ten thousand probes with a period of ten seconds run sixty times each in ten minutes. None waits, and the number of
// running probes corresponds to the duration of a probe.
func TestTenThousandProbesRunOnTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	n := 10_000
	if raceEnabled {
		n /= 10 // the race detector makes the test ten times slower
	}
	const takes = 50 * time.Millisecond // duration of a probe
	together := n * 10 / 9900           // probes that start every 10 ms
	flying := 5 * together
	synctest.Test(t, func(t *testing.T) {
		spread := 0.0
		asked := make([]int, n)
		targets := manyTargets(n)
		for i := range targets {
			targets[i].Spec.Period = 10 * time.Second
			targets[i].Prober = probe.Func(func(context.Context) (probe.Result, error) {
				asked[i]++ // without a lock, because a probe never runs twice at a time
				time.Sleep(takes)
				return probe.Result{Outcome: probe.Success}, nil
			})
		}
		s := probe.NewSet(probe.Options{
			Rand: func() float64 { spread++; return 0.99 * spread / float64(n) }, // the last first probe starts before the end of the period
			Hooks: probe.Hooks{ProbeFinished: func(k probe.Key, r probe.Result, err error, took time.Duration) {
				if err != nil || r.Outcome != probe.Success || took != takes {
					t.Errorf("%s: %v, %v after %v", k, r, err, took)
				}
			}},
		})
		require.NoError(t, s.Sync(targets))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		others := runtime.NumGoroutine() + 2 // plus Run and the goroutine of its context
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(5 * time.Second)
		for range 9 {
			time.Sleep(time.Minute)
			synctest.Wait()
			st := s.Status()
			assert.Equal(t, probe.Status{Targets: n, InFlight: st.InFlight}, st)
			assert.InDelta(t, flying, st.InFlight, float64(together+1))
			assert.LessOrEqual(t, runtime.NumGoroutine(), others+st.InFlight)
		}
		require.NoError(t, <-done)
		for i, times := range asked {
			require.Equal(t, 60, times, targets[i].Key)
		}
	})
}
