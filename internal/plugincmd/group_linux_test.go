// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugincmd_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/plugincmd"
)

// runShell runs a shell that starts a child process and then executes script. It returns the PID of the child and the error of
// Run. stay is the argument of Run.
func runShell(ctx context.Context, t *testing.T, script string, stay bool) (child int, err error) {
	t.Helper()
	out := plugincmd.Output{Max: 100}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "sleep 600 >/dev/null & echo $!; "+script)
	cmd.Stdout, cmd.WaitDelay = &out, 10*time.Second
	err = plugincmd.Run(cmd, stay)
	child, parseErr := strconv.Atoi(strings.TrimSpace(string(out.Text)))
	require.NoError(t, parseErr)
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	return child, err
}

// processExists reports whether process pid exists. An exited process exists until its parent or subreaper has reaped it.
func processExists(pid int) bool { return !errors.Is(unix.Kill(pid, 0), unix.ESRCH) }

// Remaining children of a command are killed with it, unless stay is set.
func TestRunKillsRemainingChildren(t *testing.T) {
	child, err := runShell(t.Context(), t, "exit 3", false)
	require.EqualError(t, err, "exit status 3")
	require.Eventually(t, func() bool { return !processExists(child) }, time.Minute, 10*time.Millisecond)

	child, err = runShell(t.Context(), t, "exit 0", true)
	require.NoError(t, err)
	require.True(t, processExists(child))
}

// The whole process group is killed when the context ends.
func TestRunKillsGroupAtEndOfContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits := filepath.Join(t.TempDir(), "waits")
	go func() {
		defer cancel()
		assert.Eventually(t, func() bool { _, err := os.Stat(waits); return err == nil }, time.Minute, 10*time.Millisecond)
	}()
	child, err := runShell(ctx, t, "echo >"+waits+"; wait", true)
	require.Error(t, err)
	require.Eventually(t, func() bool { return !processExists(child) }, time.Minute, 10*time.Millisecond)
}

func TestOutputLimit(t *testing.T) {
	keep, drop := plugincmd.Output{Max: 5}, plugincmd.Output{Max: 5, Drop: true}
	for _, o := range []*plugincmd.Output{&keep, &drop} {
		n, err := o.Write([]byte("1234"))
		require.NoError(t, err)
		require.Equal(t, 4, n)
	}
	_, err := keep.Write([]byte("56"))
	require.EqualError(t, err, "more than 5 bytes")
	assert.True(t, keep.Exceeded)
	assert.Equal(t, "1234", string(keep.Text))
	n, err := drop.Write([]byte("56"))
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	assert.Equal(t, "12345", string(drop.Text))
}
