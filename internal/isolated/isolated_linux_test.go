// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package isolated_test

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/isolated"
)

func TestMain(m *testing.M) {
	if os.Getenv(exitEnv) != "" {
		os.Exit(isolated.Run(isolated.Mounts|isolated.Network, func() int { return 42 }))
	}
	os.Exit(isolated.Run(isolated.Mounts|isolated.Network, m.Run))
}

// exitEnv makes the test binary exit with code 42.
const exitEnv = "ISOLATED_TEST_EXIT"

func TestRunCreatesNamespaces(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces require root")
	}
	require.NotEmpty(t, os.Getenv(isolated.Inside))
	links, err := net.Interfaces()
	require.NoError(t, err)
	for _, link := range links { // some kernels create links such as sit0 in each network namespace
		require.Zero(t, link.Flags&net.FlagUp, link.Name)
	}
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	outside, err := os.ReadFile("/proc/1/mountinfo")
	require.NoError(t, err)
	require.NotContains(t, string(outside), dir)
}

func TestRunReturnsExitCode(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), exitEnv+"=1", isolated.Inside+"=")
	require.EqualError(t, cmd.Run(), "exit status 42")
}
