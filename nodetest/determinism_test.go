// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// busyPods returns pods with usage that swings, pods with bursts and a leak, and pods that crash every five minutes.
func busyPods(t testing.TB, n simulated, count int) {
	t.Helper()
	for i := range count {
		usage := []string{
			"cpu=diurnal(0.1,0.1,10m) memory=256Mi", "cpu=bursts(0.05,1,1m,10s) memory=ramp(64Mi,1Gi,1h)", "cpu=0.1 memory=128Mi exit=1@5m",
		}[i%3]
		require.NoError(t, n.Add(nodetest.NewPod(fmt.Sprintf("pod-%03d", i), nodetest.Resources{CPU: "100m", Memory: "256Mi"}, usage)))
	}
}

// runs returns the number of repetitions: that in the environment, or else few.
func runs(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("NODETEST_RUNS"))
	if err != nil {
		return 5
	}
	return n
}

// Equal options and calls yield equal logs. NODETEST_RUNS sets the number of repetitions.
func TestLogsAreEqual(t *testing.T) {
	run := func() (log nodetest.Log) {
		synctest.Test(t, func(t *testing.T) {
			n := nodetest.New(t, nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 6 << 30}, Seed: 7})
			busyPods(t, n, 20)
			n.Advance(10*time.Minute + 30*time.Second)
			require.NoError(t, n.RestartAgent(10*time.Second))
			n.Advance(time.Minute)
			n.FillDisk(machine.NodeDisk, 90<<30)
			n.Advance(5 * time.Minute)
			log = n.Log()
		})
		return log
	}
	want := run()
	require.NotEmpty(t, want.Evicted())
	for i := range runs(t) {
		got := run()
		for j := range min(len(got), len(want)) {
			require.Equal(t, want[j].String(), got[j].String(), "run %d", i)
		}
		require.Len(t, got, len(want))
	}
}

// Equal options and calls yield equal logs of a Loop, whatever else runs and on any number of processors.
func TestLogsOfALoopAreEqual(t *testing.T) {
	run := func() string {
		l, err := nodetest.NewLoop(t.Context(), nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 6 << 30}, Seed: 7})
		require.NoError(t, err)
		busyPods(t, l, 20)
		l.Advance(5 * time.Minute)
		l.FillDisk(machine.NodeDisk, 90<<30)
		l.Advance(time.Minute)
		require.NoError(t, l.RestartAgent(10*time.Second)) // under pressure, too
		l.Advance(5 * time.Minute)
		require.NoError(t, l.Reboot(10*time.Second))
		l.Advance(time.Minute)
		return l.Log().String()
	}
	want := run()
	require.Contains(t, want, "Evicted")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 * runs(t) {
				assert.Equal(t, want, run())
			}
		})
	}
	group.Wait()
}

// An hour of a node with 110 pods: a Loop, and a Node in a bubble.
func BenchmarkHour(b *testing.B) {
	o := nodetest.Options{Machine: machine.Spec{CPUs: 16, Memory: 128 << 30}}
	b.Run("loop", func(b *testing.B) {
		for b.Loop() {
			l, err := nodetest.NewLoop(b.Context(), o)
			require.NoError(b, err)
			busyPods(b, l, 110)
			l.Advance(time.Hour)
		}
	})
	b.Run("node", func(b *testing.B) {
		for b.Loop() {
			if !testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "hour", F: func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := nodetest.New(t, o)
					busyPods(t, n, 110)
					n.Advance(time.Hour)
				})
			}}}) {
				b.Fatal("the simulation failed")
			}
		}
	})
}
