// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// An agent is killed at a random moment while it starts containers. The next agent finds every started container, running or
// with its exit code. It can start the remaining ones, and none is started twice.
func TestOpenFindsContainersOfKilledAgent(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			root := t.TempDir()
			started := runAndKill(t, root, time.Duration(rand.IntN(150))*time.Millisecond)
			rt := openRuntime(t, root)
			snapshot, err := rt.List(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(snapshot.Containers), started, "no started container is lost")
			for i, c := range snapshot.Containers {
				require.Equal(t, strconv.Itoa(i), c.Name)
				requireEventually(t, "the state of each container is known", func() bool { // a shim may take long to start its process
					c = getContainer(t, rt, c.ID)
					return c.State != cri.ContainerUnknown
				})
				if i < started {
					require.NotEqual(t, cri.ContainerCreated, c.State, "container %d was started", i)
				}
				if c.State == cri.ContainerCreated {
					require.NoError(t, rt.StartContainer(t.Context(), c.ID))
				}
				if i%2 == 1 {
					require.EqualValues(t, i%200+1, awaitExit(t, rt, c.ID).ExitCode, "exit code of container %d", i)
				} else {
					require.Equal(t, cri.ContainerRunning, getContainer(t, rt, c.ID).State, "container %d", i)
				}
				trace := filepath.Join(root, fmt.Sprint("trace.", i))
				requireEventually(t, "container leaves a trace", func() bool { _, err := os.Stat(trace); return err == nil })
				lines, err := os.ReadFile(trace)
				require.NoError(t, err)
				require.LessOrEqual(t, strings.Count(string(lines), "x"), 1, "container %d was started twice", i)
			}
			for _, s := range snapshot.Sandboxes {
				require.NoError(t, rt.RemoveSandbox(t.Context(), s.ID))
			}
			assert.Empty(t, processesWithEnv(t, "ROOT="+root), "processes are left")
			for _, dir := range []string{"sandboxes", "containers"} {
				left, err := os.ReadDir(filepath.Join(root, dir))
				require.NoError(t, err)
				assert.Empty(t, left)
			}
		})
	}
}

// runAndKill lets an agent start containers, kills it some time after the first, and returns the number of containers that it
// reported as running.
func runAndKill(t *testing.T, root string, after time.Duration) (started int) {
	t.Helper()
	agent := playAgent(t, root)
	out, err := agent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, agent.Start())
	timer := time.AfterFunc(20*time.Millisecond+after, func() { agent.Process.Kill() })
	defer timer.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); started++ {
	}
	_ = agent.Wait() // the agent was killed
	return started
}

func TestContainerOfKilledShimIsKilled(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`setsid sleep 1000 & sleep 1000`))
	entry := "NODEAGENT_CONTAINER_ID=" + id
	requireEventually(t, "all processes run", func() bool { return len(processesWithEnv(t, entry)) == 3 })

	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	require.NoError(t, unix.Kill(run.Shim, unix.SIGKILL))

	c := awaitExit(t, rt, id)
	assert.EqualValues(t, 137, c.ExitCode)
	assert.Equal(t, "Unknown", c.Reason)
	assert.Contains(t, c.Message, "shim was killed")
	assert.False(t, c.StartedAt.IsZero())
	assert.Empty(t, processesWithEnv(t, entry), "the processes are killed with their shim")
}

// rewriteRun modifies the start record of a container.
func rewriteRun(t *testing.T, dir string, change func(*shim.Run)) {
	t.Helper()
	run, err := shim.ReadRun(dir)
	require.NoError(t, err)
	change(&run)
	data, err := json.Marshal(run)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.json"), data, 0o600))
}

// After a reboot the recorded PIDs belong to other processes, which must not be killed.
func TestRunningContainerIsExitedAfterReboot(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exit 0`))
	awaitExit(t, rt, id)
	bystander := startContainer(t, rt, sandbox, cri.ContainerConfig{Name: "bystander", Command: []string{"sleep", "1000"}})
	other, err := shim.ReadRun(filepath.Join(root, "containers", bystander))
	require.NoError(t, err)
	require.NoError(t, rt.Close())

	dir := filepath.Join(root, "containers", id)
	require.NoError(t, os.Remove(filepath.Join(dir, "exit.json")))
	rewriteRun(t, dir, func(run *shim.Run) {
		run.Boot, run.PID, run.Start, run.Shim = "an earlier boot", other.PID, other.Start, other.Shim
	})

	rt = openRuntime(t, root)
	c := getContainer(t, rt, id)
	assert.Equal(t, cri.ContainerExited, c.State)
	assert.EqualValues(t, 137, c.ExitCode)
	assert.Contains(t, c.Message, "rebooted")
	assert.Equal(t, cri.ContainerRunning, getContainer(t, rt, bystander).State)
}

// Within one boot, the PID of a lost container may have been reused by another process.
func TestReusedPIDIsNotKilled(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exit 0`))
	awaitExit(t, rt, id)
	bystander := startContainer(t, rt, sandbox, cri.ContainerConfig{Name: "bystander", Command: []string{"sleep", "1000"}})
	other, err := shim.ReadRun(filepath.Join(root, "containers", bystander))
	require.NoError(t, err)
	require.NoError(t, rt.Close())

	dir := filepath.Join(root, "containers", id)
	require.NoError(t, os.Remove(filepath.Join(dir, "exit.json")))
	rewriteRun(t, dir, func(run *shim.Run) { run.PID, run.Shim = other.PID, other.Shim })

	rt = openRuntime(t, root)
	assert.EqualValues(t, 137, getContainer(t, rt, id).ExitCode)
	assert.Equal(t, cri.ContainerRunning, getContainer(t, rt, bystander).State)
}

func TestOpenDiscardsIncompleteState(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	whole := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	broken := startContainer(t, rt, sandbox, cri.ContainerConfig{Name: "broken", Command: []string{"sleep", "1000"}})
	require.NoError(t, rt.Close())

	containers := filepath.Join(root, "containers")
	require.NoError(t, os.Truncate(filepath.Join(containers, broken, "record.json"), 10))
	empty, zero, file := strings.Repeat("0e", 16), strings.Repeat("00", 16), strings.Repeat("0f", 16)
	for _, name := range []string{"." + strings.Repeat("01", 16), empty, zero} {
		require.NoError(t, os.Mkdir(filepath.Join(containers, name), 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(containers, zero, "record.json"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "sandboxes", file), nil, 0o600))

	rt = openRuntime(t, root)
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	require.Len(t, snapshot.Containers, 1)
	assert.Equal(t, whole, snapshot.Containers[0].ID)
	assert.Equal(t, cri.ContainerRunning, snapshot.Containers[0].State)
	left, err := os.ReadDir(containers)
	require.NoError(t, err)
	assert.Len(t, left, 1, "unusable directories are removed")
	assert.NoFileExists(t, filepath.Join(root, "sandboxes", file))
	assert.Empty(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+broken), "the process of the unusable container is killed")
}

func TestSecondOpenFails(t *testing.T) {
	root := t.TempDir()
	openRuntime(t, root)
	_, err := process.Open(root, process.Options{})
	require.Error(t, err)
	assert.Contains(t, err.Error(), root)
	assert.Contains(t, err.Error(), "another agent")
}

// The exit of a container that a previous agent process started is streamed at once.
func TestExitOfAdoptedContainerIsStreamed(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	require.NoError(t, rt.Close())

	rt = openRuntime(t, root)
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	var begun atomic.Bool
	var others sync.WaitGroup
	others.Go(func() { // no event reports that the stream has started
		for i := 0; !begun.Load(); i++ {
			other, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: fmt.Sprint(i)}})
			if !assert.NoError(t, err) || !assert.NoError(t, rt.RemoveSandbox(t.Context(), other)) {
				return
			}
		}
	})
	defer others.Wait()
	var killed time.Time
	err = rt.StreamEvents(t.Context(), func(e cri.Event) error {
		if e.ID != id {
			if !begun.Swap(true) {
				killed = time.Now()
				return unix.Kill(run.PID, unix.SIGKILL)
			}
			return nil
		}
		assert.Equal(t, cri.EventStopped, e.Type)
		assert.Equal(t, id, e.ID)
		assert.Equal(t, t.Name(), e.Pod.UID)
		return os.ErrProcessDone
	})
	require.ErrorIs(t, err, os.ErrProcessDone)
	t.Logf("event %v after SIGKILL", time.Since(killed))
	assert.EqualValues(t, 137, getContainer(t, rt, id).ExitCode)
}
