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

// child returns the PID of the process that the plugin has started, once it has.
func (s *stand) child() (pid int) {
	for _, line := range s.asked() {
		_, _ = fmt.Sscanf(line, "child %d", &pid)
	}
	return pid
}

// gone reports whether the process has exited. A killed plugin may remain a zombie if no process reaps orphans.
func gone(pid int) bool {
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

// A plugin that hangs is killed at its timeout, with its child that holds the output open.
func TestPluginThatHangs(t *testing.T) {
	s := newStand(t, "hang", "")
	for s.timeout = time.Second; s.child() == 0; s.timeout *= 3 { // within which it has started its child
		require.Less(t, s.timeout, 30*time.Second)
		began := time.Now()
		_, err := s.plugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), time.Minute)
	}
	eventually(t, "the child of the plugin lives", func() bool { return gone(s.child()) })
}

// A plugin whose pull is no longer wanted is killed at once.
func TestPluginIsCancelled(t *testing.T) {
	s := newStand(t, "hang", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	p := s.plugins()
	go func() {
		_, err := p.Credentials(ctx, "r.io/x", credential.Pod{})
		done <- err
	}()
	eventually(t, "the plugin does not run", func() bool { return s.child() != 0 })
	cancel()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		t.Fatal("the call does not return")
	}
	eventually(t, "the child of the plugin lives", func() bool { return gone(s.child()) })
}

// A plugin that answers and leaves a child behind is believed; the child is killed.
func TestPluginThatLeavesAChild(t *testing.T) {
	s := newStand(t, "leave", answer("Image", "", "r.io", password))
	began := time.Now()
	found, err := s.plugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.Less(t, time.Since(began), time.Minute)
	eventually(t, "the child of the plugin lives", func() bool { return gone(s.child()) })
}

// A child that has left the process group is out of reach; its hold on the output does not keep the call.
func TestPluginThatLeavesADaemon(t *testing.T) {
	s := newStand(t, "detach", answer("Image", "", "r.io", password))
	began := time.Now()
	found, err := s.plugins().Credentials(t.Context(), "r.io/x", credential.Pod{})
	daemon, findErr := os.FindProcess(s.child())
	require.NoError(t, findErr)
	defer func() { _ = daemon.Kill() }()
	require.NoError(t, err)
	assert.Len(t, found, 1)
	assert.Less(t, time.Since(began), time.Minute)
}

// Keeps a pipe in the place of a configuration from holding every pull until somebody writes to it.
func TestFilesDoNotWaitForAPipe(t *testing.T) {
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
		t.Fatal("it waits")
	}
}
