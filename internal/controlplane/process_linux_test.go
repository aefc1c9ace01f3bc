// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv makes a test binary start a program in the named directory, print its process ID, and wait to be killed.
const childEnv = "CONTROLPLANE_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		p := newSleeper(dir, "1000")
		if err := p.start(); err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(p.process.Pid) + "\n")
		select {}
	}
	os.Exit(m.Run())
}

func newSleeper(dir string, args ...string) *program {
	return &program{name: "sleep", path: "sleep", dir: dir, args: args, checkHealth: func(context.Context) error { return errors.New("asleep") }}
}

// A process does not outlive the test that started it, even if the test is killed.
func TestProcessIsKilledWithParent(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+t.TempDir())
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "the process runs")
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // returns the error of a killed process
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || strings.Contains(string(stat), "(sleep) Z") // a zombie until its parent reaps it
	}, time.Minute, 10*time.Millisecond)
}

// Waiting for a program that has exited, or never becomes ready, returns an error. After an exit the error has the end of
// the log.
func TestAwaitReadyFailsWhenProcessExits(t *testing.T) {
	p := newSleeper(t.TempDir(), "no number")
	require.NoError(t, p.start())
	err := p.awaitReady(t.Context())
	require.ErrorAs(t, err, new(*exitError))
	require.ErrorContains(t, err, "sleep ended; the end of its log:\nsleep: invalid time interval")
	require.NoError(t, p.killProcess(), "killProcess succeeds after the exit")
	require.NoError(t, p.killProcess())

	p = newSleeper(t.TempDir(), "1000")
	require.NoError(t, p.start())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, p.awaitReady(ctx), "wait for sleep: asleep")
	require.NoError(t, p.killProcess())
	require.ErrorContains(t, (&program{name: "none", path: "/does/not/exist", dir: t.TempDir()}).start(), "start none: ")
}
