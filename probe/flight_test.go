// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// A probe whose prober returns an error is repeated at once, up to three calls in all.
func TestProberCalledThreeTimesWhileItReturnsErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		calls := 0
		flaky := func(context.Context) (probe.Result, error) {
			if calls++; calls == 3 || calls > 6 {
				return probe.Result{Outcome: probe.Success}, nil
			}
			return probe.Result{Outcome: probe.Failure}, errors.New("no route")
		}
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", flaky)}))
		assert.Equal(t, []string{"0s a Readiness a1 failure", "0s a Readiness a1 success", "0s a probed success after 0s"}, d.linesAfter(0))
		assert.Equal(t, []string{`10s a error "no route" after 0s`, "20s a probed success after 0s"}, d.linesAfter(20*time.Second))
		assert.Equal(t, 7, calls)
	})
}

// Probes above Options.Parallel wait in the order of their due times, and are counted.
func TestParallelLimitDelaysProbesInDueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := 0.0
		d := startRecorder(t, probe.Options{Parallel: 2, Rand: func() float64 { turn += 0.01; return turn }})
		var targets []probe.Target
		for _, name := range []string{"a", "b", "c", "d", "e"} { // due 100 ms apart
			slow := runningTarget(name, delayedProber(time.Second, probe.Result{Outcome: probe.Success}, nil))
			slow.Spec.Timeout = 5 * time.Second
			targets = append(targets, slow)
		}
		require.NoError(t, d.set.Sync(targets))
		d.linesAfter(time.Second)
		assert.Equal(t, probe.Status{Targets: 5, InFlight: 2, Waiting: 3}, d.set.Status())
		require.NoError(t, d.set.Sync(targets), "a Sync of unchanged targets keeps the order of waiting probes")
		d.set.Trigger(targets[4].Key)
		assert.Contains(t, d.linesAfter(4*time.Second), "2.1s e waited 1.6s")
		assert.Equal(t, probe.Status{Targets: 5, Delayed: 3}, d.set.Status())
		assert.Equal(t, []string{
			"11.1s a probed success after 1s", "11.1s c waited 800ms",
			"11.2s b probed success after 1s", "11.2s d waited 800ms",
			"12.1s c probed success after 1s", "12.1s e waited 1.6s",
			"12.2s d probed success after 1s",
			"13.1s e probed success after 1s",
		}, d.linesAfter(10*time.Second))

		// A removed probe releases its slot.
		d.linesAfter(6 * time.Second) // 21s
		assert.Equal(t, 3, d.set.Status().Waiting)
		require.NoError(t, d.set.Sync(targets[:3]))
		d.linesAfter(0)
		assert.Equal(t, probe.Status{Targets: 3, InFlight: 2, Waiting: 1, Delayed: 6}, d.set.Status())
	})
}

// A waiting probe that is rescheduled or removed does not run at its old position.
func TestWaitingProbeLosesItsSlotWhenRescheduled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Parallel: 1})
		a, b := runningTarget("a", delayedProber(2*time.Second, probe.Result{Outcome: probe.Success}, nil)), runningTarget("b", succeed)
		a.Spec.Timeout = 5 * time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(time.Second / 2)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		d.linesAfter(time.Second / 2)
		assert.Equal(t, 1, d.set.Status().Waiting)
		b.ContainerID, b.StartedAt, b.Spec.InitialDelay = "b2", time.Now(), 5*time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{
			"1s b Readiness b2 failure",
			"2s a Readiness a1 success", "2s a probed success after 2s",
			"6s b Readiness b2 success", "6s b probed success after 0s",
		}, d.linesAfter(7*time.Second))
	})
}

// A running probe is cancelled when its container must no longer be probed, and its result is ignored.
func TestRunningProbeCancelledWhenContainerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Parallel: 1})
		ended := 0
		slow := func(ctx context.Context) (probe.Result, error) {
			<-ctx.Done()
			ended++
			return probe.Result{Outcome: probe.Success}, nil
		}
		a := runningTarget("a", slow)
		a.Spec.Timeout = 5 * time.Second
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(time.Second)
		a.ContainerID = "a2"
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"1s a Readiness a2 failure"}, d.linesAfter(time.Second))
		assert.Equal(t, 1, ended)
		assert.Equal(t, 1, d.set.Status().InFlight, "the new container is being probed")

		a.Running = false
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(0)
		assert.Equal(t, 2, ended)
		a.Running = true
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(time.Second)
		require.NoError(t, d.set.Sync(nil))
		assert.Equal(t, []string{"3s a Readiness removed"}, d.linesAfter(time.Second))
		assert.Equal(t, 3, ended)
		assert.Equal(t, probe.Status{}, d.set.Status())
	})
}

// A prober that ignores its context is given up a second after its timeout. It delays other probes for a second, is not called
// again before it returns, and its late result is ignored.
func TestHungProberIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Parallel: 1})
		hung := func(context.Context) (probe.Result, error) {
			time.Sleep(33 * time.Second)
			return probe.Result{Outcome: probe.Success}, nil
		}
		a, b := runningTarget("a", hung), runningTarget("b", succeed)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{
			"0s a Readiness a1 failure",
			"0s b Readiness b1 failure",
			"1.1s b waited 1.1s",
			"1.1s b Readiness b1 success",
			"1.1s b probed success after 0s",
			`2s a error "prober does not return" after 2s`,
			"10s b probed success after 0s",
			"20s b probed success after 0s",
			"30s b probed success after 0s",
		}, d.linesAfter(30*time.Second))
		assert.Equal(t, probe.Status{Targets: 2, Hung: 1, Delayed: 1}, d.set.Status())
		assert.Equal(t, []string{`35s a error "prober does not return" after 2s`}, d.linesAfter(5*time.Second), "a prober that has returned is called again")

		require.NoError(t, d.set.Sync([]probe.Target{b}), "the call of a removed target still counts as hung")
		d.linesAfter(0)
		assert.Equal(t, probe.Status{Targets: 1, Hung: 1, Delayed: 1}, d.set.Status())
		d.linesAfter(33 * time.Second)
		assert.Equal(t, probe.Status{Targets: 1, Delayed: 1}, d.set.Status())
	})
}

// Run returns once all probers have returned, and not before.
func TestRunReturnsAfterItsProbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		returned := false
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", func(ctx context.Context) (probe.Result, error) {
			<-ctx.Done()
			time.Sleep(time.Minute)
			returned = true
			return probe.Result{}, ctx.Err()
		})}))
		d.linesAfter(time.Second / 2)
		d.stop()
		assert.True(t, returned)
	})
}
