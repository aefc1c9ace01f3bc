// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

// startGracefulContainer starts a container that exits with code 3 on its stop signal, and returns when it handles the signal.
func startGracefulContainer(t *testing.T, rt *process.Runtime, sandbox string) string {
	t.Helper()
	c := shellConfig(`trap 'sleep 0.1; exit 3' TERM; touch ready; while :; do sleep 0.05; done`)
	c.WorkingDir = t.TempDir()
	id := startContainer(t, rt, sandbox, c)
	requireEventually(t, "the container handles its stop signal", func() bool {
		_, err := os.Stat(filepath.Join(c.WorkingDir, "ready"))
		return err == nil
	})
	return id
}

// withoutDescriptors leaves a process no free descriptor until restore is called; pid 0 means this process.
func withoutDescriptors(t *testing.T, pid int) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: before.Max}, nil))
	return func() { require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil)) }
}

func shimOf(t *testing.T, root, id string) int {
	t.Helper()
	run, err := shim.ReadRun(filepath.Join(root, "containers", id))
	require.NoError(t, err)
	return run.Shim
}

// An agent without a free descriptor does not kill the container that it stops: the signal is sent later.
func TestStopDuringDescriptorShortageDoesNotKill(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startGracefulContainer(t, rt, sandbox)
	restore := withoutDescriptors(t, 0)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	time.Sleep(500 * time.Millisecond)
	restore()
	require.NoError(t, <-stopped)
	assert.EqualValues(t, 3, getContainer(t, rt, id).ExitCode)
}

// A container that exits while the agent has no free descriptor has its own exit code.
func TestExitCodeIsReadAfterDescriptorShortage(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startGracefulContainer(t, rt, sandbox)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	time.Sleep(50 * time.Millisecond) // within the time in which the container exits
	restore := withoutDescriptors(t, 0)
	time.Sleep(300 * time.Millisecond)
	for range 3 {
		_, err := rt.List(t.Context())
		assert.NoError(t, err)
	}
	restore()
	<-stopped // may fail, because the exit code could not be read
	assert.EqualValues(t, 3, awaitExit(t, rt, id).ExitCode)
	require.NoError(t, rt.Close())
	assert.EqualValues(t, 3, getContainer(t, openRuntime(t, root), id).ExitCode)
}

// A shim that lacked descriptors for a while still receives the stop signal.
func TestStopAfterShimHadNoDescriptors(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startGracefulContainer(t, rt, sandbox)
	restore := withoutDescriptors(t, shimOf(t, root, id))
	_, err := rt.ExecSync(t.Context(), id, []string{"true"}, time.Second)
	require.Error(t, err)
	restore()
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	assert.EqualValues(t, 3, getContainer(t, rt, id).ExitCode)
}

// A shim that does not respond for a while, as on a swapping machine, is no reason to kill its container before the grace
// period has expired.
func TestStopWaitsForHungShimDuringGrace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startGracefulContainer(t, rt, sandbox)
	pid := shimOf(t, root, id)
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	time.AfterFunc(11*time.Second, func() { unix.Kill(pid, unix.SIGCONT) })
	require.NoError(t, rt.StopContainer(t.Context(), id, 30*time.Second))
	assert.EqualValues(t, 3, getContainer(t, rt, id).ExitCode)
}

// A shim that never responds does not keep its container alive after the grace period and the time to kill it.
func TestStopKillsContainerOfHungShimAfterGrace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id := startGracefulContainer(t, rt, sandbox)
	require.NoError(t, unix.Kill(shimOf(t, root, id), unix.SIGSTOP))
	began := time.Now()
	require.NoError(t, rt.StopContainer(t.Context(), id, time.Second))
	assert.Less(t, time.Since(began), time.Minute)
	assert.EqualValues(t, 137, getContainer(t, rt, id).ExitCode)
	assert.Empty(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id))
}

// openUnknown opens a runtime with a container in state unknown: its shim runs, but its start record is missing.
func openUnknown(t *testing.T) (rt *process.Runtime, id string, restore func()) {
	t.Helper()
	root := t.TempDir()
	rt = openRuntime(t, root)
	sandbox, _ := runPodSandbox(t, rt)
	id = startGracefulContainer(t, rt, sandbox)
	require.NoError(t, rt.Close())
	record := filepath.Join(root, "containers", id, "run.json")
	require.NoError(t, os.Rename(record, record+".away"))
	rt = openRuntime(t, root)
	require.Equal(t, cri.ContainerUnknown, getContainer(t, rt, id).State)
	return rt, id, func() { require.NoError(t, os.Rename(record+".away", record)) }
}

// A container in state unknown gets a known state once its shim can be found, and event streams receive its event.
func TestUnknownContainerIsReexaminedForEvents(t *testing.T) {
	t.Parallel()
	rt, id, restore := openUnknown(t)
	events := make(chan cri.Event, 10)
	go func() {
		_ = rt.StreamEvents(t.Context(), func(e cri.Event) error {
			events <- e
			return nil
		})
	}()
	next := func() cri.Event {
		select {
		case e := <-events:
			return e
		case <-time.After(time.Minute):
			require.FailNow(t, "no event")
			return cri.Event{}
		}
	}
	time.Sleep(time.Second)
	require.Equal(t, cri.ContainerUnknown, getContainer(t, rt, id).State)
	restore()
	e := next()
	assert.Equal(t, []any{cri.EventStarted, id}, []any{e.Type, e.ID})
	c := getContainer(t, rt, id)
	assert.Equal(t, cri.ContainerRunning, c.State)
	assert.False(t, c.StartedAt.IsZero())
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	e = next()
	assert.Equal(t, []any{cri.EventStopped, id}, []any{e.Type, e.ID})
	assert.EqualValues(t, 3, getContainer(t, rt, id).ExitCode)
}

// Without event streams, lists re-examine the container.
func TestUnknownContainerIsReexaminedByList(t *testing.T) {
	t.Parallel()
	rt, id, restore := openUnknown(t)
	restore()
	requireEventually(t, "the state of the container is known", func() bool { return getContainer(t, rt, id).State == cri.ContainerRunning })
}

// A container whose shim never records its process can be stopped, with its grace period, and removed.
func TestStopOfUnknownContainer(t *testing.T) {
	t.Parallel()
	rt, id, _ := openUnknown(t)
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	c := getContainer(t, rt, id)
	assert.Equal(t, cri.ContainerExited, c.State)
	assert.EqualValues(t, 3, c.ExitCode)
	require.NoError(t, rt.RemoveContainer(t.Context(), id))
}

// Log lines about a container contain its pod and name, not only an ID.
func TestLogLinesNamePodAndContainer(t *testing.T) {
	var lines outputBuffer
	rt, err := process.Open(t.TempDir(), process.Options{
		IgnoreUnsupported: true, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	require.NoError(t, err)
	defer rt.Close()
	sandbox, _ := runPodSandbox(t, rt)
	defer func() { require.NoError(t, rt.RemoveSandbox(t.Context(), sandbox)) }()
	c := shellConfig(`exec sleep 1000`)
	c.Name, c.CDIDevices = "web", []string{"v.com/c=n"}
	id := startContainer(t, rt, sandbox, c)
	restore := withoutDescriptors(t, 0)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	lines.awaitText(t, "cannot signal container")
	restore()
	require.NoError(t, <-stopped)
	assert.Contains(t, lines.String(), `msg="ignoring unsupported field" namespace=test pod=pod container=web field="cdi_devices [\"v.com/c=n\"]"`)
	assert.Contains(t, lines.String(), `msg="cannot signal container" namespace=test pod=pod container=web containerID=`+id+" error=")
}
