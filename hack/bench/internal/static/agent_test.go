// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/hack/bench/internal/wait"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scriptAgent returns an agent that is a shell script.
func scriptAgent(t *testing.T, text string) (agent, paths) {
	t.Helper()
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh:", err)
	}
	p := paths{cri: "unix:///x", manifests: "/manifests", work: t.TempDir()}
	path := filepath.Join(p.work, "agent.sh")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	return agent{Name: "script", Binary: shell, Command: []string{shell, path, "-cri={cri}", "{manifests}"}}, p
}

// awaitLine returns the first line that the agent prints.
func awaitLine(t *testing.T, run *process) string {
	t.Helper()
	require.NoError(t, wait.Poll(t.Context(), 5*time.Millisecond, 30*time.Second, func() (bool, error) {
		return run.tail() != "", nil
	}))
	return run.tail()
}

func TestAgentGetsItsPlaceholdersAndEndsAtSIGTERM(t *testing.T) {
	a, p := scriptAgent(t, `trap 'exit 0' TERM; echo "$@"; sleep 100 & wait`)
	run, err := startAgent(a, p)
	require.NoError(t, err)
	assert.Equal(t, "-cri=unix:///x /manifests", awaitLine(t, run))
	require.NoError(t, run.alive())

	require.NoError(t, run.stop(t.Context(), time.Minute))
	assert.Equal(t, 0, run.cmd.ProcessState.ExitCode())
	assertSessionExited(t, run.pid())
}

// The working directory of an agent is not that of the harness.
func TestParseAgentMakesThePathAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("agent", []byte("#!/bin/sh"), 0o755))
	a, err := parseAgent("x=./agent {cri} {manifests}")
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(a.Binary), a.Binary)
}

// An agent that ignores SIGTERM is killed together with its child processes.
func TestStopEndsAStubbornAgent(t *testing.T) {
	a, p := scriptAgent(t, `trap '' TERM; sleep 100 & echo $!; wait`)
	run, err := startAgent(a, p)
	require.NoError(t, err)
	child, err := strconv.Atoi(awaitLine(t, run))
	require.NoError(t, err)
	members, err := procFS("/proc").session(run.pid())
	require.NoError(t, err)
	require.Contains(t, members, child)

	require.NoError(t, run.stop(t.Context(), 10*time.Millisecond))
	assert.Equal(t, "signal: killed", run.cmd.ProcessState.String())
	assertSessionExited(t, run.pid())
}

func TestAgentThatEndsByItselfIsNoticed(t *testing.T) {
	a, p := scriptAgent(t, `echo no such socket >&2; exit 3`)
	run, err := startAgent(a, p)
	require.NoError(t, err)
	<-run.ended
	assert.EqualError(t, run.alive(), "agent ended by itself (exit status 3)")
	assert.Equal(t, "no such socket", run.tail())
	assert.NoError(t, run.stop(t.Context(), time.Minute), "no process of the session remains")
}

func TestTailIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("a", 5000)+"end\n"), 0o600))
	tail := (&process{log: path}).tail()
	assert.Len(t, tail, 2000)
	assert.True(t, strings.HasSuffix(tail, "end"))
}

// assertSessionExited waits until init has reaped the orphaned processes.
func assertSessionExited(t *testing.T, session int) {
	t.Helper()
	assert.NoError(t, wait.Poll(t.Context(), 5*time.Millisecond, 30*time.Second, func() (bool, error) {
		members, err := procFS("/proc").session(session)
		return len(members) == 0, err
	}))
}
