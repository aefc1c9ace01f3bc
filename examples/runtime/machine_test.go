// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/isolated"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// machine is the environment of a kubelet and the runtime, in the namespaces of the tests.
type machine struct {
	exetest.Dir

	t       *testing.T
	kubelet string       // path of the kubelet
	bin     string       // directory of CNI plugins
	netns   string       // directory of network namespaces
	socket  string       // of the runtime
	group   cgroups.Path // parent of all containers
	client  *remote.Client
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Getenv(isolated.Inside) == "" {
		t.Skip("a kubelet needs root")
	}
	m := &machine{Dir: exetest.NewDir(t), t: t, bin: lab.PluginDir(t, "ptp", "host-local")}
	m.kubelet, m.netns, m.socket = filepath.Join(m.bin, "kubelet"), filepath.Join(m.Path, "netns"), filepath.Join(m.Path, "cri.sock")
	if _, err := os.Stat(m.kubelet); err != nil {
		t.Skip("there is no kubelet: run `make kubelet` once: ", err)
	}
	require.NoError(t, exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").Run())
	for _, dir := range []string{"/var/lib", "/var/log"} { // a kubelet writes there in any configuration
		require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	host, err := driver.Open(t.Context(), driver.Options{})
	require.NoError(t, err)
	m.group = cgroups.Path(fmt.Sprintf("nodeagent-kubelet-%d-%s", os.Getpid(), t.Name()))
	require.NoError(t, host.Apply(t.Context(), m.group, cgroups.Resources{}))
	t.Cleanup(func() {
		require.NoError(t, host.Remove(context.WithoutCancel(t.Context()), m.group))
		require.NoError(t, host.Close())
	})
	t.Cleanup(func() { _ = unix.Unmount(m.netns, unix.MNT_DETACH) })
	m.Write("cni/10-kubelet.conflist", fmt.Sprintf(cniConfig, filepath.Join(m.Path, "leases")))
	m.Write("host/file", "of the host")
	m.client, err = remote.Dial("unix://"+m.socket, remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.client.Close()) })
	return m
}

// start starts the runtime.
func (m *machine) start() *exetest.Process {
	m.t.Helper()
	p := program.Start(m.t, "-state", filepath.Join(m.Path, "state"), "-socket", m.socket, "-mounts", "-cgroups", m.group.Cgroupfs(),
		"-cni-conf", filepath.Join(m.Path, "cni"), "-cni-plugins", m.bin, "-netns", m.netns)
	exetest.Eventually(m.t, 10*time.Second, func() error { return m.client.Check(m.t.Context()) })
	return p
}

// awaitEmpty waits until no container and no sandbox runs, and checks that no network namespace remains.
func (m *machine) awaitEmpty() {
	m.t.Helper()
	exetest.Eventually(m.t, time.Minute, func() error { return checkNothingRuns(m.t.Context(), m.client) })
	names, err := os.ReadDir(m.netns)
	require.NoError(m.t, err)
	for _, name := range names {
		require.True(m.t, strings.HasPrefix(name.Name(), "."), "network namespace %s is removed", name.Name())
	}
}

// checkNothingRuns returns an error if a container runs or a sandbox is ready.
func checkNothingRuns(ctx context.Context, l cri.Lister) error {
	snapshot, err := l.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range snapshot.Containers {
		if c.State == cri.ContainerRunning {
			return fmt.Errorf("container %s runs", c.Name)
		}
	}
	for _, s := range snapshot.Sandboxes {
		if s.State == cri.SandboxReady {
			return fmt.Errorf("sandbox of %s is ready", s.Pod.Name)
		}
	}
	return nil
}
