// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/controlplane"
)

// serveEnv makes this test binary serve a control plane in the named directory until it gets SIGTERM.
const serveEnv = "CONTROLPLANE_TEST_SERVE"

// startServer starts another process that serves a control plane.
func startServer(t *testing.T, bin, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServe$")
	cmd.Env = append(os.Environ(), serveEnv+"="+dir, "CONTROLPLANE_TEST_BIN="+bin)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("output of the serving process: %s", &log)
		}
	})
	return cmd
}

// TestServe runs in the process that startServer starts.
func TestServe(t *testing.T) {
	dir := os.Getenv(serveEnv)
	if dir == "" {
		_, err := controlplane.Open(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, fs.ErrNotExist)
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	require.NoError(t, controlplane.Serve(ctx, os.Getenv("CONTROLPLANE_TEST_BIN"), dir, controlplane.Options{}))
}

// Open finds the control plane of another process. It can be used, watched and stopped, and does not outlive the serving
// process.
func TestOpenFindsServedPlane(t *testing.T) {
	bin, dir := controlplane.RequirePrograms(t, controlplane.Etcd, controlplane.APIServer), t.TempDir()
	cmd := startServer(t, bin, dir)
	s := awaitPlane(t, dir)
	require.ErrorContains(t, controlplane.Serve(t.Context(), bin, dir, controlplane.Options{}), "another agent has it open")
	require.NoError(t, s.Admin().CheckReady(t.Context()))
	_, err := s.CreateBootstrapToken(t.Context())
	require.NoError(t, err)
	for _, name := range []string{"", "..", "a/b", "../x"} {
		_, err := s.NodeKubeconfig(name)
		require.ErrorContains(t, err, "it is no name of a node", name)
	}
	first, err := s.NodeKubeconfig("n1")
	require.NoError(t, err)
	again, err := s.NodeKubeconfig("n1")
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.FileExists(t, first)
	require.FileExists(t, s.AuditPath())
	require.FileExists(t, s.LogPath(controlplane.Etcd))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
	require.NoError(t, cmd.Wait(), "the serving process exits without error")
	_, err = controlplane.Open(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	cmd = startServer(t, bin, dir) // in the directory of the stopped control plane
	s = awaitPlane(t, dir)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	_, err = controlplane.Open(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for name, pid := range s.PIDs() {
		require.Eventually(t, func() bool { return !isRunning(pid) }, time.Minute, 10*time.Millisecond, name)
	}
}

// isRunning reports whether a process runs. A zombie does not.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func awaitPlane(t *testing.T, dir string) (s *controlplane.SharedPlane) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		s, err = controlplane.Open(dir)
		return err == nil
	}, controlplane.DefaultTimeout, 100*time.Millisecond)
	return s
}
