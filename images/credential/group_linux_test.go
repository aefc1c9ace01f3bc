// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package credential_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/images/credential"
)

// childPID returns the PID of the child process of the plugin, or 0 if it has not started one.
func (s *pluginDir) childPID() (pid int) {
	for _, line := range s.readRequests() {
		_, _ = fmt.Sscanf(line, "child %d", &pid)
	}
	return pid
}

// hasExited reports whether the process has exited. A killed plugin may remain a zombie if no process reaps orphans.
func hasExited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("Z"))
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, 5*time.Millisecond, what)
}

// A hanging plugin is killed at its timeout, with its child process, which holds the output open.
func TestHungPluginIsKilled(t *testing.T) {
	s := newPluginDir(t, "hang", "")
	for s.timeout = time.Second; s.childPID() == 0; s.timeout *= 3 { // repeat with a longer timeout until the plugin has started its child
		require.Less(t, s.timeout, 30*time.Second)
		began := time.Now()
		_, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), time.Minute)
	}
	eventually(t, "the child of the plugin is killed", func() bool { return hasExited(s.childPID()) })
}

// A plugin is killed at once, with its child process, when the context of the pull is cancelled.
func TestCancelledPluginIsKilled(t *testing.T) {
	s := newPluginDir(t, "hang", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := s.newPlugins()
	go func() {
		_, err := p.Credentials(ctx, "r.io/x", credential.Pod{})
		done <- err
	}()
	eventually(t, "the plugin has started its child", func() bool { return s.childPID() != 0 })
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("Credentials does not return")
	}
	eventually(t, "the child of the plugin is killed", func() bool { return hasExited(s.childPID()) })
}

// The response of a plugin that leaves a child process is accepted. The child is killed.
func TestChildOfPluginIsKilled(t *testing.T) {
	s := newPluginDir(t, "leave", newResponse("Image", "", "r.io", password))
	began := time.Now()
	found, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.Less(t, time.Since(began), time.Minute)
	eventually(t, "the child of the plugin is killed", func() bool { return hasExited(s.childPID()) })
}

// A child process that has left the process group is not killed. It holds the output open, but Credentials returns.
func TestDaemonOfPluginDoesNotBlock(t *testing.T) {
	s := newPluginDir(t, "detach", newResponse("Image", "", "r.io", password))
	began := time.Now()
	found, err := s.newPlugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
	daemon, findErr := os.FindProcess(s.childPID())
	require.NoError(t, findErr)
	defer func() { _ = daemon.Kill() }()
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.Less(t, time.Since(began), time.Minute)
}

// A named pipe in place of a configuration file is an error. Reading it does not block.
func TestFilesDoNotBlockOnNamedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	done := make(chan error, 1)
	go func() {
		_, err := credential.Files{pipe}.Credentials(context.WithoutCancel(t.Context()), "r.io/x", credential.Pod{})
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorContains(t, err, pipe+": not a plain file")
	case <-time.After(time.Minute):
		t.Fatal("Credentials blocks on a named pipe")
	}
}
