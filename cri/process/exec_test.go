// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
)

func TestExec(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	c := shellConfig(`exec sleep 1000`)
	c.WorkingDir = "/usr"
	c.Env = []cri.EnvVar{{Name: "A", Value: "first"}, {Name: "A", Value: "a b"}}
	id := startContainer(t, rt, sandbox, c)
	sh := func(script string, timeout time.Duration) (cri.ExecResult, error) {
		return rt.ExecSync(t.Context(), id, []string{"sh", "-c", script}, timeout)
	}

	result, err := sh(`pwd; echo "$A"; echo "$PATH" >&2; exit 5`, 0)
	require.NoError(t, err)
	assert.Equal(t, "/usr\na b\n", string(result.Stdout))
	assert.Contains(t, string(result.Stderr), "/usr/bin")
	assert.Equal(t, 5, result.ExitCode)

	result, err = sh(`kill -9 $$`, 0)
	require.NoError(t, err)
	assert.Equal(t, 137, result.ExitCode)

	_, err = rt.ExecSync(t.Context(), id, []string{"no-such-command"}, 0)
	require.ErrorContains(t, err, "no-such-command")

	_, err = sh(`setsid sleep 1000 & sleep 1000`, time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireEventually(t, "the command and its child processes are killed", func() bool {
		return len(processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id)) == 1
	})
}

func TestExecSyncTruncatesOutput(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	result, err := rt.ExecSync(t.Context(), id, []string{"sh", "-c", `head -c 20000000 /dev/zero; echo done >&2`}, 0)
	require.NoError(t, err)
	assert.Len(t, result.Stdout, 16<<20)
	assert.Equal(t, "done\n", string(result.Stderr), "the command is not blocked by the truncation")

	result, err = rt.ExecSync(cri.WithMaxOutput(t.Context(), 1000), id, []string{"sh", "-c", `head -c 20000000 /dev/zero; echo done >&2`}, 0)
	require.NoError(t, err)
	assert.Len(t, result.Stdout, 1000, "the limit of the caller")
	assert.Equal(t, "done\n", string(result.Stderr), "the command is not blocked by the truncation")
}

// A background process of a command neither delays the result nor outlives the container.
func TestExecSyncDoesNotWaitForDaemon(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	began := time.Now()
	result, err := rt.ExecSync(t.Context(), id, []string{"sh", "-c", `setsid sleep 1000 & echo out`}, 5*time.Minute)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), time.Minute)
	assert.Equal(t, "out\n", string(result.Stdout))
	// While a process is in exec, it has no environment.
	requireEventually(t, "the daemon runs", func() bool { return len(processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id)) == 2 })
	require.NoError(t, rt.StopContainer(t.Context(), id, time.Second))
	assert.Empty(t, processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id))
}

// A running command is killed when the container exits, and ExecSync returns an error.
func TestExecSyncEndsWhenContainerExits(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err := rt.ExecSync(t.Context(), id, []string{"sleep", "1000"}, 0)
		assert.True(t, err != nil || result.ExitCode == 137, "%+v", result)
	}()
	requireEventually(t, "the command runs", func() bool { return len(processesWithEnv(t, "NODEAGENT_CONTAINER_ID="+id)) == 2 })
	require.NoError(t, rt.StopContainer(t.Context(), id, time.Second))
	<-done
}

// An argument list that exceeds one socket message arrives complete.
func TestExecSyncAcceptsLongCommand(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`exec sleep 1000`))
	cmd := []string{"printf", "%s"}
	for range 20 {
		cmd = append(cmd, strings.Repeat("x", 50_000))
	}
	result, err := rt.ExecSync(t.Context(), id, cmd, 0)
	require.NoError(t, err)
	assert.Len(t, result.Stdout, 1_000_000)
}
