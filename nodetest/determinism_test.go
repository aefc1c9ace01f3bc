// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"errors"
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

// addBusyPods adds pods with usage that swings, pods with bursts and a leak, and pods that crash every five minutes.
func addBusyPods(n simulated, count int) error {
	for i := range count {
		usage := []string{
			"cpu=diurnal(0.1,0.1,10m) memory=256Mi", "cpu=bursts(0.05,1,1m,10s) memory=ramp(64Mi,1Gi,1h)", "cpu=0.1 memory=128Mi exit=1@5m",
		}[i%3]
		if err := n.Add(nodetest.NewPod(fmt.Sprintf("pod-%03d", i), nodetest.Resources{CPU: "100m", Memory: "256Mi"}, usage)); err != nil {
			return err
		}
	}
	return nil
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
			require.NoError(t, addBusyPods(n, 20))
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
	run := func() (log string, err error) {
		l, err := nodetest.NewLoop(t.Context(), nodetest.Options{Machine: machine.Spec{CPUs: 2, Memory: 6 << 30}, Seed: 7})
		if err != nil {
			return "", err
		}
		err = addBusyPods(l, 20)
		l.Advance(5 * time.Minute)
		l.FillDisk(machine.NodeDisk, 90<<30)
		l.Advance(time.Minute)
		err = errors.Join(err, l.RestartAgent(10*time.Second)) // under pressure, too
		l.Advance(5 * time.Minute)
		err = errors.Join(err, l.Reboot(10*time.Second))
		l.Advance(time.Minute)
		return l.Log().String(), err
	}
	want, err := run()
	require.NoError(t, err)
	require.Contains(t, want, "Evicted")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 5 * runs(t) {
				got, err := run()
				assert.NoError(t, err)
				assert.Equal(t, want, got)
			}
		})
	}
	group.Wait()
}
