// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// minimalTarget returns a target with only the required fields.
func minimalTarget(name string, kind probe.Kind) probe.Target {
	return probe.Target{
		Key:         probe.Key{PodUID: "u1", Container: name, Kind: kind},
		ContainerID: name + "1", Running: true, Spec: probe.Spec{Period: 10 * time.Second}, Prober: probe.Func(succeed),
	}
}

// A container without a startup probe is probed even if Target.Started is not set, as in targets of other programs.
func TestContainerWithoutStartupProbeIsProbedWithoutStarted(t *testing.T) {
	for name, sync := range map[string]func(*probe.Set, ...probe.Target) error{
		"Sync":    func(s *probe.Set, targets ...probe.Target) error { return s.Sync(targets) },
		"SyncPod": func(s *probe.Set, targets ...probe.Target) error { return s.SyncPod("u1", targets) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startRecorder(t, probe.Options{})
				require.NoError(t, sync(d.set, minimalTarget("a", probe.Readiness), minimalTarget("b", probe.Liveness)))
				lines := d.linesAfter(10 * time.Second)
				assert.Contains(t, lines, "0s a probed success after 0s")
				assert.Contains(t, lines, "10s b probed success after 0s")

				// With a startup probe, its other probes wait for Started, even if the startup probe is invalid.
				startup := minimalTarget("b", probe.Startup)
				require.NoError(t, sync(d.set, minimalTarget("a", probe.Readiness), minimalTarget("b", probe.Liveness), startup))
				assert.Equal(t, []string{
					"10s b Startup b1 unknown", "10s b Startup b1 success", "10s b probed success after 0s",
					"20s a probed success after 0s", "30s a probed success after 0s",
				}, d.linesAfter(20*time.Second), "only the startup probe of b runs")
				startup.Spec.Period = -1
				require.ErrorContains(t, sync(d.set, minimalTarget("b", probe.Liveness), startup), "field Period")
				assert.Equal(t, []string{"30s a Readiness removed", "30s b Startup removed"}, d.linesAfter(30*time.Second))
				live := minimalTarget("b", probe.Liveness)
				live.Started = true
				require.ErrorContains(t, sync(d.set, live, startup), "field Period")
				assert.Contains(t, d.linesAfter(10*time.Second), "1m10s b probed success after 0s")
			})
		})
	}
}

// Without StartedAt, the initial delay of a container starts when its target first has Running.
func TestInitialDelayWithoutStartedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startRecorder(t, probe.Options{})
		a := minimalTarget("a", probe.Readiness)
		a.Spec.InitialDelay = 25 * time.Second
		a.Running = false
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		time.Sleep(5 * time.Second)
		a.Running = true
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		time.Sleep(5 * time.Second)
		require.NoError(t, d.set.Sync([]probe.Target{a})) // a later Sync must not restart the initial delay
		d.set.Trigger(a.Key)
		lines := d.linesAfter(25 * time.Second)
		require.NotEmpty(t, lines)
		assert.Equal(t, "30s a probed success after 0s", lines[len(lines)-1])
		a.ContainerID = "a2"
		require.NoError(t, d.set.Sync([]probe.Target{a}))
		lines = d.linesAfter(30 * time.Second)
		assert.Equal(t, "1m0s a probed success after 0s", lines[len(lines)-1], "the initial delay restarts with another container")
	})
}
