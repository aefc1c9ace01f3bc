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

func TestSetProbesEveryPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		require.NoError(t, d.set.Sync([]probe.Target{runningTarget("a", delayedProber(100*time.Millisecond, probe.Result{Outcome: probe.Success}, nil))}))
		assert.Equal(t, []string{
			"0s a Readiness a1 failure",
			"100ms a Readiness a1 success",
			"100ms a probed success after 100ms",
			"10.1s a probed success after 100ms",
			"20.1s a probed success after 100ms",
		}, d.linesAfter(25*time.Second))
		v, ok := d.set.Result(probe.Key{PodUID: "u1", Container: "a", Kind: probe.Readiness})
		assert.Equal(t, probe.Value{ContainerID: "a1", Outcome: probe.Success}, v)
		assert.True(t, ok)
		assert.Len(t, d.set.Results(), 1)
	})
}

// A Sync with unchanged targets changes and starts nothing. A Sync without a target removes it.
func TestSyncWithUnchangedTargetsChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		a, b := runningTarget("a", succeed), runningTarget("b", succeed)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		d.linesAfter(time.Second)
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Empty(t, d.linesAfter(8*time.Second))
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"9s b Readiness removed"}, d.linesAfter(0))
		_, ok := d.set.Result(b.Key)
		assert.False(t, ok)
		assert.Equal(t, 1, d.set.Status().Targets)

		require.NoError(t, d.set.Sync([]probe.Target{a, b}), "only b is new")
		assert.Equal(t, []string{"9s b Readiness b1 failure", "9s b Readiness b1 success", "9s b probed success after 0s"}, d.linesAfter(0))
		assert.Equal(t, []string{"10s a probed success after 0s"}, d.linesAfter(time.Second))
	})
}

func TestSyncRejectsInvalidTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		bad := func(f func(*probe.Target)) probe.Target {
			b := runningTarget("bad", succeed)
			f(&b)
			return b
		}
		good := runningTarget("good", succeed)
		err := d.set.Sync([]probe.Target{
			bad(func(b *probe.Target) { b.Spec.Period = 0 }),
			bad(func(b *probe.Target) { b.Spec.Period = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.Period = probe.MinPeriod - 1 }),
			bad(func(b *probe.Target) { b.Spec.Timeout = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.InitialDelay = -time.Second }),
			bad(func(b *probe.Target) { b.Spec.SuccessThreshold = -1 }),
			bad(func(b *probe.Target) { b.Spec.FailureThreshold = -2 }),
			bad(func(b *probe.Target) { b.Prober = nil }),
			bad(func(b *probe.Target) { b.PodUID = "" }),
			bad(func(b *probe.Target) { b.Container = "" }),
			bad(func(b *probe.Target) { b.Kind = 7 }),
			good, good,
		})
		assert.EqualError(t, err, `Readiness probe of container "bad" of pod "u1": field Period: 0s is less than 10ms
Readiness probe of container "bad" of pod "u1": field Period: -1s is less than 10ms
Readiness probe of container "bad" of pod "u1": field Period: 9.999999ms is less than 10ms
Readiness probe of container "bad" of pod "u1": field Timeout: -1s is negative
Readiness probe of container "bad" of pod "u1": field InitialDelay: -1s is negative
Readiness probe of container "bad" of pod "u1": field SuccessThreshold: -1 is negative
Readiness probe of container "bad" of pod "u1": field FailureThreshold: -2 is negative
Readiness probe of container "bad" of pod "u1": field Prober: is nil
Readiness probe of container "bad" of pod "": field PodUID: is empty
Readiness probe of container "" of pod "u1": field Container: is empty
Kind(7) probe of container "bad" of pod "u1": field Kind: 7 is none of Startup, Readiness and Liveness
Readiness probe of container "good" of pod "u1": has two targets`)
		assert.Len(t, d.linesAfter(time.Second), 3, "the valid target is probed once")
	})
}

func TestTriggerProbesNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		a := runningTarget("a", delayedProber(time.Second/2, probe.Result{Outcome: probe.Failure}, nil))
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(4 * time.Second)
		d.set.Trigger(a.Key)
		d.set.Trigger(a.Key)
		d.set.Trigger(probe.Key{PodUID: "nobody"})
		assert.Equal(t, []string{"4.5s a probed failure after 500ms"}, d.linesAfter(time.Second))
		assert.Empty(t, d.linesAfter(9*time.Second-1), "the period restarts with the trigger")
		assert.Equal(t, []string{"14.5s a probed failure after 500ms"}, d.linesAfter(time.Second))

		time.Sleep(9100 * time.Millisecond) // 24.1s, during a probe
		d.set.Trigger(a.Key)
		assert.Equal(t, []string{"24.5s a probed failure after 500ms", "25s a probed failure after 500ms"}, d.linesAfter(2*time.Second))
	})
}

// After the start of the agent, first probes are spread over their period; later new probes run at once.
func TestFirstProbesSpreadAfterAgentStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Rand: func() float64 { return 0.75 }})
		a, b := runningTarget("a", succeed), runningTarget("b", succeed)
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(7400 * time.Millisecond)
		assert.Equal(t, []string{"7.5s a Readiness a1 success", "7.5s a probed success after 0s"}, d.linesAfter(3*time.Second))
		require.NoError(t, d.set.Sync([]probe.Target{a, b}))
		assert.Equal(t, []string{"10.4s b Readiness b1 failure", "10.4s b Readiness b1 success", "10.4s b probed success after 0s"}, d.linesAfter(0))
	})
}

// A container of a previous agent is listed as stopped for a moment: it must not keep the value Failure.
func TestAdoptedContainerHasNoValueAfterItRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{Rand: func() float64 { return 0.5 }})
		a := runningTarget("a", succeed)
		a.Kind, a.Running, a.StartedAt = probe.Liveness, false, time.Now().Add(-time.Hour)
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		assert.Equal(t, []string{"0s a Liveness a1 failure"}, d.linesAfter(0))
		a.Running = true
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		d.linesAfter(0)
		_, ok := d.set.Result(a.Key)
		assert.False(t, ok)
		assert.Equal(t, []string{"5s a Liveness a1 success", "5s a probed success after 0s"}, d.linesAfter(5*time.Second))
	})
}

// A container with all three probes, from its start to its restart. The test copies results into the targets.
func TestAllProbesFromStartToRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		well := time.Now().Add(12 * time.Second)
		sick := time.Now().Add(34 * time.Second)
		check := func(ctx context.Context) (probe.Result, error) {
			if now := time.Now(); now.Before(well) || now.After(sick) {
				return fail(ctx)
			}
			return succeed(ctx)
		}
		targets := func(id string, started bool) (all []probe.Target) {
			for _, k := range []probe.Kind{probe.Startup, probe.Readiness, probe.Liveness} {
				target := runningTarget("a", check)
				target.Kind, target.ContainerID, target.Started = k, id, started
				target.Spec = probe.Spec{Period: 5 * time.Second, FailureThreshold: 4}
				if k == probe.Readiness {
					target.Spec.FailureThreshold = 1
				}
				all = append(all, target)
			}
			return all
		}
		require.NoError(t, d.set.Sync(targets("a1", false)))
		assert.Equal(t, []string{"0s a Startup a1 unknown", "0s a Readiness a1 failure", "0s a Liveness a1 success"}, d.linesAfter(0)[:3])
		assert.Equal(t, []string{
			"5s a probed failure after 0s", "10s a probed failure after 0s",
			"15s a Startup a1 success", "15s a probed success after 0s",
		}, d.linesAfter(17*time.Second))
		require.NoError(t, d.set.Sync(targets("a1", true)))
		assert.Equal(t, []string{"17s a Readiness a1 success", "17s a probed success after 0s"}, d.linesAfter(0))
		lines := d.linesAfter(33*time.Second + 1)
		assert.Contains(t, lines, "37s a Readiness a1 failure")
		assert.Equal(t, "50s a Liveness a1 failure", lines[len(lines)-2])
		require.NoError(t, d.set.Sync(targets("a2", false)))
		assert.Equal(t, []string{"50.000000001s a Startup a2 unknown", "50.000000001s a Readiness a2 failure", "50.000000001s a Liveness a2 success"}, d.linesAfter(0))
	})
}
