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

// startOrderly starts a container that exits with code 3 when it gets its stop signal, and returns when it would.
func startOrderly(t *testing.T, rt *process.Runtime, sandbox string) string {
	t.Helper()
	c := shell(`trap 'sleep 0.1; exit 3' TERM; touch ready; while :; do sleep 0.05; done`)
	c.WorkingDir = t.TempDir()
	id := start(t, rt, sandbox, c)
	eventually(t, "the container heeds the signal", func() bool {
		_, err := os.Stat(filepath.Join(c.WorkingDir, "ready"))
		return err == nil
	})
	return id
}

// withoutDescriptors leaves a process, 0 for this one, none to open until restore is called.
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

// An agent that has no descriptor free when it stops a container does not kill it: the signal comes later.
func TestStopWithoutDescriptors(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, _ := pod(t, rt)
	id := startOrderly(t, rt, sandbox)
	restore := withoutDescriptors(t, 0)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	time.Sleep(500 * time.Millisecond)
	restore()
	require.NoError(t, <-stopped)
	assert.EqualValues(t, 3, get(t, rt, id).ExitCode)
}

// A container that ends while the agent has no descriptor free has its own exit code, not one that says it was lost.
func TestExitWithoutDescriptors(t *testing.T) {
	root := t.TempDir()
	rt := open(t, root)
	sandbox, _ := pod(t, rt)
	id := startOrderly(t, rt, sandbox)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	time.Sleep(50 * time.Millisecond) // within the time that the container takes to end
	restore := withoutDescriptors(t, 0)
	time.Sleep(300 * time.Millisecond)
	for range 3 {
		_, err := rt.List(t.Context())
		assert.NoError(t, err)
	}
	restore()
	<-stopped // it may have been told that nobody can read how the container ended
	assert.EqualValues(t, 3, exited(t, rt, id).ExitCode)
	require.NoError(t, rt.Close())
	assert.EqualValues(t, 3, get(t, open(t, root), id).ExitCode)
}

// A shim that had no descriptor free for a while still takes the stop signal of its container.
func TestStopAfterShimHadNoDescriptors(t *testing.T) {
	root := t.TempDir()
	rt := open(t, root)
	sandbox, _ := pod(t, rt)
	id := startOrderly(t, rt, sandbox)
	restore := withoutDescriptors(t, shimOf(t, root, id))
	_, err := rt.ExecSync(t.Context(), id, []string{"true"}, time.Second)
	require.Error(t, err)
	restore()
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	assert.EqualValues(t, 3, get(t, rt, id).ExitCode)
}

// A shim that does not answer for long, as on a machine that swaps, is not a reason to kill its container before the
// grace period is over.
func TestStopWhileShimHangs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rt := open(t, root)
	sandbox, _ := pod(t, rt)
	id := startOrderly(t, rt, sandbox)
	pid := shimOf(t, root, id)
	require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
	time.AfterFunc(11*time.Second, func() { unix.Kill(pid, unix.SIGCONT) })
	require.NoError(t, rt.StopContainer(t.Context(), id, 30*time.Second))
	assert.EqualValues(t, 3, get(t, rt, id).ExitCode)
}

// A shim that never answers does not keep a container alive beyond its grace period and the time that killing takes.
func TestStopWhileShimHangsForEver(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	rt := open(t, root)
	sandbox, _ := pod(t, rt)
	id := startOrderly(t, rt, sandbox)
	require.NoError(t, unix.Kill(shimOf(t, root, id), unix.SIGSTOP))
	began := time.Now()
	require.NoError(t, rt.StopContainer(t.Context(), id, time.Second))
	assert.Less(t, time.Since(began), time.Minute)
	assert.EqualValues(t, 137, get(t, rt, id).ExitCode)
	assert.Empty(t, marked(t, "NODEAGENT_CONTAINER_ID="+id))
}

// openUnknown opens a runtime in which a container is in state unknown: its shim lives, but its start record is away.
func openUnknown(t *testing.T) (rt *process.Runtime, id string, restore func()) {
	t.Helper()
	root := t.TempDir()
	rt = open(t, root)
	sandbox, _ := pod(t, rt)
	id = startOrderly(t, rt, sandbox)
	require.NoError(t, rt.Close())
	record := filepath.Join(root, "containers", id, "run.json")
	require.NoError(t, os.Rename(record, record+".away"))
	rt = open(t, root)
	require.Equal(t, cri.ContainerUnknown, get(t, rt, id).State)
	return rt, id, func() { require.NoError(t, os.Rename(record+".away", record)) }
}

// A container whose state was unknown when the agent started must not stay so until the next start: it is known again
// once its shim can be found, and whoever streams events is told.
func TestUnknownIsExaminedAgain(t *testing.T) {
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
	require.Equal(t, cri.ContainerUnknown, get(t, rt, id).State)
	restore()
	e := next()
	assert.Equal(t, []any{cri.EventStarted, id}, []any{e.Type, e.ID})
	c := get(t, rt, id)
	assert.Equal(t, cri.ContainerRunning, c.State)
	assert.False(t, c.StartedAt.IsZero())
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	e = next()
	assert.Equal(t, []any{cri.EventStopped, id}, []any{e.Type, e.ID})
	assert.EqualValues(t, 3, get(t, rt, id).ExitCode)
}

// Without anybody who streams events, lists examine it.
func TestUnknownIsExaminedByList(t *testing.T) {
	t.Parallel()
	rt, id, restore := openUnknown(t)
	restore()
	eventually(t, "the state is known", func() bool { return get(t, rt, id).State == cri.ContainerRunning })
}

// A container whose shim never says what it runs can be stopped all the same, with its grace period, and removed.
func TestStopUnknown(t *testing.T) {
	t.Parallel()
	rt, id, _ := openUnknown(t)
	require.NoError(t, rt.StopContainer(t.Context(), id, 20*time.Second))
	c := get(t, rt, id)
	assert.Equal(t, cri.ContainerExited, c.State)
	assert.EqualValues(t, 3, c.ExitCode)
	require.NoError(t, rt.RemoveContainer(t.Context(), id))
}

// Whoever reads of trouble with a container learns whose it is, and need not look for the pod of an ID.
func TestLogLinesNamePodAndContainer(t *testing.T) {
	var lines text
	rt, err := process.Open(t.TempDir(), process.Options{
		IgnoreUnsupported: true, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	})
	require.NoError(t, err)
	defer rt.Close()
	sandbox, _ := pod(t, rt)
	defer func() { require.NoError(t, rt.RemoveSandbox(t.Context(), sandbox)) }()
	c := shell(`exec sleep 1000`)
	c.Name, c.CDIDevices = "web", []string{"v.com/c=n"}
	id := start(t, rt, sandbox, c)
	restore := withoutDescriptors(t, 0)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.StopContainer(t.Context(), id, 20*time.Second) }()
	lines.awaits(t, "cannot signal container")
	restore()
	require.NoError(t, <-stopped)
	assert.Contains(t, lines.String(), `msg="ignoring unsupported field" namespace=test pod=pod container=web field="cdi_devices [\"v.com/c=n\"]"`)
	assert.Contains(t, lines.String(), `msg="cannot signal container" namespace=test pod=pod container=web containerID=`+id+" error=")
}
