// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// A stop kills all descendants of a container, even after they left its session, and leaves no zombie.
func TestStopKillsAllDescendants(t *testing.T) {
	for _, test := range []struct {
		name, script string
		processes    int
	}{
		{"children", `for i in $(seq 100); do sleep 1000 & done; wait`, 101},
		{"descendants that ignore SIGTERM", `trap '' TERM; for i in $(seq 10); do sh -c 'trap "" TERM; while :; do sleep 1000; done' & done; wait`, 21},
		{"own sessions", `for i in $(seq 10); do setsid sleep 1000 & done; wait`, 11},
		{"daemons", `for i in $(seq 10); do (setsid sh -c 'sleep 1000 & exec sleep 1000' &) ; done; exec sleep 1000`, 21},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := childPIDs(t)
			rt := openRuntime(t, t.TempDir())
			sandbox, _ := runPodSandbox(t, rt)
			id := startContainer(t, rt, sandbox, shellConfig(test.script))
			entry := "NODEAGENT_CONTAINER_ID=" + id
			requireEventually(t, "all processes run", func() bool { return len(processesWithEnv(t, entry)) == test.processes })
			require.NoError(t, rt.StopContainer(t.Context(), id, time.Second))
			assert.Empty(t, processesWithEnv(t, entry))
			assert.Equal(t, cri.ContainerExited, getContainer(t, rt, id).State)
			for pid := range childPIDs(t) {
				assert.Contains(t, before, pid, "no child process is left")
			}
		})
	}
}

// childPIDs returns the process IDs of the children of the test, including zombies.
func childPIDs(t *testing.T) map[int]bool {
	t.Helper()
	all, err := procfs.ListProcesses()
	require.NoError(t, err)
	pids := make(map[int]bool)
	for _, p := range procfs.NewTree(all)[os.Getpid()] {
		pids[p.PID] = true
	}
	return pids
}

// A container exits with its first process, and its remaining processes are killed, as in a PID namespace.
func TestExitKillsRemainingProcesses(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`setsid sleep 1000 & sleep 1000 & exit 7`))
	assert.EqualValues(t, 7, awaitExit(t, rt, id).ExitCode)
	assert.Empty(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id))
}

func TestStopSignal(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	for _, test := range []struct {
		signal cri.Signal
		code   int32
	}{
		{"", 128 + 15},
		{"SIGINT", 128 + 2},
		{"SIGRTMIN+3", 128 + 37},
		{"SIGRTMAX", 128 + 64},
	} {
		c := cri.ContainerConfig{Name: "c" + string(test.signal), Command: []string{"sleep", "1000"}, StopSignal: test.signal}
		id := startContainer(t, rt, sandbox, c)
		require.NoError(t, rt.StopContainer(t.Context(), id, 10*time.Second))
		assert.Equal(t, test.code, getContainer(t, rt, id).ExitCode, "signal %q", test.signal)
	}
}

// A later stop with a shorter grace period does not wait for an earlier stop.
func TestLaterStopWithShorterGraceWins(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`trap '' TERM; while :; do sleep 1; done`))
	slow := make(chan error, 1)
	go func() { slow <- rt.StopContainer(t.Context(), id, time.Minute) }()
	began := time.Now()
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, <-slow)
	assert.Less(t, time.Since(began), 40*time.Second)
}

// A sandbox that is stopped while containers start has no running process afterwards.
func TestStopSandboxDuringStartLeavesNoProcess(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	for i := range 20 {
		sandbox, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Attempt: uint32(i)})
		require.NoError(t, err)
		id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Command: []string{"sleep", "1000"}}, nil)
		require.NoError(t, err)
		started := make(chan error, 1)
		go func() { started <- rt.StartContainer(t.Context(), id) }()
		time.Sleep(time.Duration(i) * 200 * time.Microsecond) // another moment of the start each time
		require.NoError(t, rt.StopSandbox(t.Context(), sandbox))
		<-started // a start may be refused
		require.NotEqual(t, cri.ContainerRunning, getContainer(t, rt, id).State)
		require.Empty(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id))
	}
}

// A cancelled start leaves an exited container and no process.
func TestCancelledStartLeavesExitedContainer(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	for i := range 20 {
		c := shellConfig(`exec sleep 1000`)
		c.Name = strconv.Itoa(i)
		id, err := rt.CreateContainer(t.Context(), sandbox, &c, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*500*time.Microsecond)
		err = rt.StartContainer(ctx, id)
		cancel()
		if err == nil {
			continue // the start was faster than the timeout
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		state := getContainer(t, rt, id)
		if state.State == cri.ContainerExited {
			assert.Equal(t, "StartError", state.Reason)
		}
		requireEventually(t, "no process of the container is left", func() bool { return len(processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id)) == 0 })
	}
}

func TestStats(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sh -c 'exec sleep 1000'`))
	requireEventually(t, "CPU time is counted", func() bool {
		stats, err := rt.ContainerStats(t.Context())
		require.NoError(t, err)
		require.Len(t, stats, 1)
		assert.Equal(t, id, stats[0].ID)
		return *stats[0].CPU.UsageCoreNanoSeconds >= uint64(30*time.Millisecond) && *stats[0].Memory.RSSBytes > 1<<20
	})
	pods, err := rt.SandboxStats(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, sandbox, pods[0].ID)
	assert.Positive(t, *pods[0].CPU.UsageCoreNanoSeconds)
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	stats, err := rt.ContainerStats(t.Context())
	require.NoError(t, err)
	assert.Empty(t, stats)
}

// The longest grace period and timeout must not overflow and thus expire at once.
func TestLongestGraceAndTimeoutDoNotOverflow(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	for _, longest := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Second, math.MaxInt64 - time.Second + 1} {
		c := shellConfig(`trap 'sleep 0.2; exit 3' TERM; touch ready; while :; do sleep 0.05; done`)
		c.Name, c.WorkingDir = strconv.FormatInt(int64(longest), 10), t.TempDir()
		id := startContainer(t, rt, sandbox, c)
		requireEventually(t, "the container handles its stop signal", func() bool {
			_, err := os.Stat(filepath.Join(c.WorkingDir, "ready"))
			return err == nil
		})
		result, err := rt.ExecSync(t.Context(), id, []string{"sh", "-c", "sleep 0.1; exit 4"}, longest)
		require.NoError(t, err, "timeout %d", longest)
		assert.Equal(t, 4, result.ExitCode)
		require.NoError(t, rt.StopContainer(t.Context(), id, longest))
		assert.EqualValues(t, 3, getContainer(t, rt, id).ExitCode, "grace %d", longest)
	}
}
