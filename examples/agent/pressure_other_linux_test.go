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

// A pod that forks without limit is evicted before the process IDs run out. Other pods continue.
func TestIntegrationPIDPressure(t *testing.T) {
	s := newStarvedNode(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.writePod("forks", "while :; do for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100000 & done; sleep 0.2; done", "{}")
	most := readNumber(t, "/proc/sys/kernel/threads-max")
	const few = 1000 // so that the test does not take minutes
	writeNumber(t, "/proc/sys/kernel/threads-max", few)
	t.Cleanup(func() { writeNumber(t, "/proc/sys/kernel/threads-max", most) })
	a := s.start(map[string]string{"pid.available": "600"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "forks-n1")
	s.startScript("forks")
	s.awaitEvicted(a, "forks-n1", vmTimeout)
	a.AwaitLine(vmTimeout, "reason=Evicted", "pod=forks-n1", "The node was low on resource: pids. Threshold quantity: 600, available: ", "starved_resource:pids")
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[PIDPressure]")
	a.AwaitLine(vmTimeout, `msg="node conditions"`, "conditions=[]")
	s.manifests.Remove("forks.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "forks-n1")
	delete(before, "forks-n1")
	s.requireSameContainers(before)
	s.drain(a)
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

// slowEater allocates 10 MB five times a second.
const slowEater = "while :; do dd if=/dev/zero bs=10000000 count=1 2>/dev/null | sleep 100000 & sleep 0.2; done"

// A pod is evicted although the runtime hangs: the agent kills its cgroup. After the runtime has resumed, the eviction
// completes, and other pods are unaffected.
func TestIntegrationMemoryPressureWhileRuntimeHangs(t *testing.T) {
	s := newStarvedNode(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.writePod("eater", slowEater, "{requests: {memory: 16Mi}}")
	a := s.start(map[string]string{"memory.available": "150Mi"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "eater-n1")
	_, uid := s.containers("eater-n1")
	pod := cgroups.PodPath("", cgroups.Burstable, uid)

	killed := oomKills(t)
	runtime := s.lab.ContainerdPID()
	require.NoError(t, unix.Kill(runtime, unix.SIGSTOP))
	resume := func() { _ = unix.Kill(runtime, unix.SIGCONT) }
	t.Cleanup(resume)
	s.startScript("eater")
	a.AwaitLine(vmTimeout, `msg="evict pod"`, "pod=default/eater-n1")
	exetest.Eventually(t, vmTimeout, func() error {
		stats, err := s.cgroups.Stats(within(t, 10*time.Second), pod)
		if err == nil && stats.Pids.Current > 0 {
			err = fmt.Errorf("%d processes of the pod remain, with %d MB", stats.Pids.Current, stats.Memory.Current/1e6)
		}
		return err
	})
	require.Equal(t, killed, oomKills(t), "the kernel itself kills no process")

	resume()
	s.awaitEvicted(a, "eater-n1", vmTimeout)
	s.manifests.Remove("eater.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "eater-n1")
	delete(before, "eater-n1")
	s.requireSameContainers(before)
	require.Equal(t, 1, strings.Count(a.Output(), `msg="evict pod" pod=default/`), "only one pod is evicted")
	s.drain(a)
}

// If the file systems of the images and of a volume hang, only their own signals are missing: pods are evicted for memory as
// before.
func TestIntegrationMemoryPressureWithHungFileSystem(t *testing.T) {
	s := newStarvedNode(t)
	s.manifests.Write("calm.yaml", resourcesYAML("calm", "{}"))
	s.writePod("eater", slowEater, "{requests: {memory: 16Mi}}")
	a := s.start(map[string]string{"memory.available": "150Mi", "imagefs.available": "1%"}, nil)
	before := s.awaitRunning(vmTimeout, "calm-n1", "eater-n1")
	_, uid := s.containers("eater-n1")
	below := filepath.Join(s.state, "pods", uid, "volumes", "kubernetes.io~empty-dir", "dir", "dead")
	require.NoError(t, os.Mkdir(below, 0o755))

	killed := oomKills(t)
	revive := []func(){mountHung(t, below), mountHung(t, filepath.Join(s.lab.Dir(), "root", "io.containerd.snapshotter.v1.overlayfs"))}
	a.AwaitLine(vmTimeout, `msg="observe node"`, "imagefs", "no answer")
	s.startScript("eater")
	a.AwaitLine(vmTimeout, `msg="evict pod"`, "pod=default/eater-n1")
	pod := cgroups.PodPath("", cgroups.Burstable, uid)
	exetest.Eventually(t, vmTimeout, func() error {
		stats, err := s.cgroups.Stats(within(t, 10*time.Second), pod)
		if err == nil && stats.Memory.Current > 50_000_000 {
			err = fmt.Errorf("the pod still uses %d MB", stats.Memory.Current/1e6)
		}
		return err
	})
	require.Equal(t, killed, oomKills(t), "the kernel itself kills no process")

	for _, r := range revive {
		r()
	}
	s.awaitEvicted(a, "eater-n1", vmTimeout)
	s.manifests.Remove("eater.yaml")
	a.AwaitLine(vmTimeout, "pod is removed", "eater-n1")
	delete(before, "eater-n1")
	s.requireSameContainers(before)
	require.Equal(t, 1, strings.Count(a.Output(), `msg="evict pod" pod=default/`), "only one pod is evicted")
	s.drain(a)
}

// mountHung mounts a FUSE file system without a server. revive aborts and unmounts it.
func mountHung(t *testing.T, target string) (revive func()) {
	t.Helper()
	_ = exec.CommandContext(t.Context(), "modprobe", "fuse").Run() // fails if FUSE is built in
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	gone := false
	revive = func() {
		if gone {
			return
		}
		gone = true
		require.NoError(t, unix.Close(fd)) // blocked calls return an error
		require.NoError(t, unix.Unmount(target, unix.MNT_DETACH))
	}
	t.Cleanup(revive)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	require.NoError(t, unix.Mount("dead", target, "fuse", unix.MS_NOSUID|unix.MS_NODEV, data))
	return revive
}
