// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
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
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// A pod that forks without an end is evicted while there are process IDs left, and those that fork nothing stay.
func TestIntegrationPIDPressure(t *testing.T) {
	s := newStarved(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.pod("forks", "while :; do for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100000 & done; sleep 0.2; done", "{}")
	most := readNumber(t, "/proc/sys/kernel/threads-max")
	const few = 1000 // so that it does not take minutes
	writeNumber(t, "/proc/sys/kernel/threads-max", few)
	t.Cleanup(func() { writeNumber(t, "/proc/sys/kernel/threads-max", most) })
	a := s.start(map[string]string{"pid.available": "600"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "forks-n1")
	s.begin("forks")
	s.evicted(a, "forks-n1", vmTimeout)
	a.AwaitLine(vmTimeout, "reason=Evicted", "pod=forks-n1", "The node was low on resource: pids. Threshold quantity: 600, available: ", "starved_resource:pids")
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[PIDPressure]")
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[]")
	s.manifests.Remove("forks.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "forks-n1")
	delete(before, "forks-n1")
	s.untouched(before)
	s.end(a)
}

func readNumber(t *testing.T, path string) (n int) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = fmt.Sscan(string(text), &n)
	require.NoError(t, err)
	return n
}

func writeNumber(t *testing.T, path string, n int) {
	require.NoError(t, os.WriteFile(path, fmt.Append(nil, n), 0))
}

// slowEater takes 10 MB five times a second.
const slowEater = "while :; do dd if=/dev/zero bs=10000000 count=1 2>/dev/null | sleep 100000 & sleep 0.2; done"

// A runtime that does not answer while memory runs out keeps nobody from being evicted: the kernel is told to kill the pod. When it
// answers again the pod is held back as any other, and nobody else was touched.
func TestIntegrationMemoryPressureWithoutARuntime(t *testing.T) {
	s := newStarved(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.pod("eater", slowEater, "{requests: {memory: 16Mi}}")
	a := s.start(map[string]string{"memory.available": "150Mi"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "eater-n1")
	_, uid := s.containers("eater-n1")
	pod := cgroups.PodPath("", cgroups.Burstable, uid)
	killed := oomKills(t)
	runtime := s.lab.ContainerdPID()
	require.NoError(t, unix.Kill(runtime, unix.SIGSTOP))
	resume := func() { _ = unix.Kill(runtime, unix.SIGCONT) }
	t.Cleanup(resume)
	s.begin("eater")
	a.AwaitLine(vmTimeout, `msg="evict pod"`, "pod=default/eater-n1")
	exetest.Eventually(t, vmTimeout, func() error {
		stats, err := s.cgroups.Stats(within(t, 10*time.Second), pod)
		if err == nil && stats.Pids.Current > 0 {
			err = fmt.Errorf("%d tasks of the pod are there, with %d MB", stats.Pids.Current, stats.Memory.Current/1e6)
		}
		return err
	})
	require.Equal(t, killed, oomKills(t), "the kernel had to kill nothing by itself")
	resume()
	s.evicted(a, "eater-n1", vmTimeout)
	s.manifests.Remove("eater.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "eater-n1")
	delete(before, "eater-n1")
	s.untouched(before)
	require.Equal(t, 1, strings.Count(a.Output(), `msg="evict pod" pod=default/`), "one pod was evicted")
	s.end(a)
}

// A file system that does not answer, where images are and below a volume that is measured, costs its own signals: memory is watched
// and pods are evicted as before.
func TestIntegrationMemoryPressureBesideADeadDisk(t *testing.T) {
	s := newStarved(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.pod("eater", slowEater, "{requests: {memory: 16Mi}}")
	a := s.start(map[string]string{"memory.available": "150Mi", "imagefs.available": "1%"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "eater-n1")
	_, uid := s.containers("eater-n1")
	below := filepath.Join(s.state, "pods", uid, "volumes", "kubernetes.io~empty-dir", "dir", "dead")
	require.NoError(t, os.Mkdir(below, 0o755))
	killed := oomKills(t)
	revive := []func(){deadMount(t, below), deadMount(t, filepath.Join(s.lab.Dir(), "root", "io.containerd.snapshotter.v1.overlayfs"))}
	a.AwaitLine(vmTimeout, `msg="observe node"`, "imagefs", "no answer")
	s.begin("eater")
	a.AwaitLine(vmTimeout, `msg="evict pod"`, "pod=default/eater-n1")
	pod := cgroups.PodPath("", cgroups.Burstable, uid)
	exetest.Eventually(t, vmTimeout, func() error {
		stats, err := s.cgroups.Stats(within(t, 10*time.Second), pod)
		if err == nil && stats.Memory.Current > 50_000_000 {
			err = fmt.Errorf("the pod has %d MB", stats.Memory.Current/1e6)
		}
		return err
	})
	require.Equal(t, killed, oomKills(t), "the kernel had to kill nothing by itself")
	for _, r := range revive {
		r()
	}
	s.evicted(a, "eater-n1", vmTimeout)
	s.manifests.Remove("eater.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "eater-n1")
	delete(before, "eater-n1")
	s.untouched(before)
	require.Equal(t, 1, strings.Count(a.Output(), `msg="evict pod" pod=default/`), "one pod was evicted")
	s.end(a)
}

// deadMount mounts a FUSE file system that nobody serves, and returns what takes it away.
func deadMount(t *testing.T, target string) (revive func()) {
	t.Helper()
	_ = exec.CommandContext(t.Context(), "modprobe", "fuse").Run() // where it is built in there is no such module
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	gone := false
	revive = func() {
		if gone {
			return
		}
		gone = true
		require.NoError(t, unix.Close(fd)) // whoever waits gets an error
		require.NoError(t, unix.Unmount(target, unix.MNT_DETACH))
	}
	t.Cleanup(revive)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	require.NoError(t, unix.Mount("dead", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data))
	return revive
}
