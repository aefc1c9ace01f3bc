// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// A node whose pods use nothing has no events, so that it costs nothing. A pod with usage ends this.
func TestIdleLoopHasNoEvents(t *testing.T) {
	l, err := NewLoop(t.Context(), Options{})
	require.NoError(t, err)
	for i := range 10 {
		require.NoError(t, l.Add(NewPod(fmt.Sprint("p", i), Resources{CPU: "10m"}, "")))
	}
	l.Advance(time.Minute)
	require.LessOrEqual(t, len(l.queue.events), 1, "a pass of the evictor, because the time has just passed")
	passes := l.evictor.passID
	l.Advance(time.Hour)
	require.Less(t, l.evictor.passID, passes+10)
	require.NoError(t, l.Add(NewPod("busy", Resources{}, "memory=ramp(0,1Gi,1m)")))
	l.Advance(30 * time.Second)
	require.True(t, l.idle.ticking)
	stats, err := l.Stats("busy")
	require.NoError(t, err)
	require.InDelta(t, 512<<20, stats.Memory.Current, 30<<20)
}

// The log is the same if the node skips the events of idle times: with pods that start and exit, a disk that fills, and pods that are evicted.
func TestIdleTimesDoNotChangeLog(t *testing.T) {
	run := func(awake bool, seed uint64) string {
		l, err := NewLoop(t.Context(), Options{Machine: machine.Spec{CPUs: 2, Memory: 4 << 30}, Seed: seed})
		require.NoError(t, err)
		if awake {
			l.Machine() // the caller may change it, so that the node is never idle
		}
		l.Advance(time.Duration(seed) * 1700 * time.Millisecond)
		for i, usage := range []string{"", "exit=1@70s", "exit=0@3m", "memory=steps(10Mi@1m,5Gi@6m) exit=1@7m", "cpu=0.5 exit=0@45s", "logs=ramp(1Mi,400Mi,8m)"} {
			require.NoError(t, l.Add(NewPod(fmt.Sprint("p", i), Resources{Memory: "10Mi"}, usage)))
			l.Advance(time.Duration(i) * 13 * time.Second)
		}
		l.Advance(10 * time.Minute)
		l.FillDisk(machine.NodeDisk, 95<<30)
		l.Advance(2 * time.Minute)
		require.NoError(t, l.Delete("p1"))
		require.NoError(t, l.RestartAgent(10*time.Second))
		l.Advance(10 * time.Minute)
		return l.Log().String()
	}
	for seed := range uint64(8) {
		require.Equal(t, run(true, seed), run(false, seed))
	}
}
