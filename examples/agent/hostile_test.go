// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/hostile"
)

// memoryLimit is the memory of the smallest machine that runs an agent with all of its manifests.
const memoryLimit = 256 << 20

// No manifest stops the agent, whose memory is limited to that of a small machine. A good pod next to each hostile manifest
// runs within seconds. The log names each invalid manifest.
func TestIntegrationHostileManifests(t *testing.T) {
	group := newMemoryGroup(t)
	f := newProcesses(t)
	a := f.startIn(group, buildAgent(t), map[string]any{"drainOnExit": true})
	var some []hostile.Manifest
	size := 0
	for _, m := range hostile.All(10<<20 - 1) {
		some = append(some, m)
		if size += len(m.Text); size > 40<<20 || len(some) == 15 {
			f.checkGoodPodsRun(a, some)
			some, size = nil, 0
		}
	}
	f.checkGoodPodsRun(a, some)
	f.checkGoodPodsRunBesideFiles(a)
	require.NoError(t, syscall.Kill(a.PID(), 0), "the agent is still running")
	require.Zero(t, group.countKills(t), "no process of the cgroup is killed for its memory")
	t.Logf("peak memory: %d MiB of %d", group.peak(t)>>20, memoryLimit>>20)
}

// buildAgent builds the agent without the race detector, which needs too much memory, and returns its path.
func buildAgent(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

// startIn starts the agent at path in a cgroup. fields are added to its config.
func (f files) startIn(group memoryGroup, path string, fields map[string]any) *exetest.Process {
	f.t.Helper()
	return exetest.StartCommand(f.t, exec.Command("/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, string(group),
		path, "-config", f.config(fields)))
}

// checkGoodPodsRun writes manifests into the directory, with a good one for each. It waits until all good pods run and all
// bad manifests are in the log, and removes the manifests.
func (f files) checkGoodPodsRun(a *exetest.Process, bad []hostile.Manifest) {
	f.t.Helper()
	begun := time.Now()
	var names []string
	for _, m := range bad {
		good := "good-" + strings.TrimSuffix(m.Name, ".yaml")
		names = append(names, m.Name, good+".yaml")
		f.manifests.Write(m.Name, string(m.Text))
		f.manifests.Write(good+".yaml", podYAML(good, sleeper))
	}
	for i, m := range bad {
		a.AwaitLine(timeout, "pod=good-"+strings.TrimSuffix(m.Name, ".yaml")+"-n1 phase=Running", "1/1 restarts=0")
		if !m.Fine {
			a.AwaitLine(timeout, "level=ERROR", names[2*i])
		}
	}
	if took := time.Since(begun); took > 3*time.Second {
		f.t.Logf("%s took %s", names[0], took)
	}
	for _, name := range names {
		f.manifests.Remove(name)
	}
}

// checkGoodPodsRunBesideFiles adds files that are not regular or not readable, and one that changes all the time, and calls
// checkGoodPodsRun.
func (f files) checkGoodPodsRunBesideFiles(a *exetest.Process) {
	f.t.Helper()
	at := func(name string) string { return filepath.Join(f.manifests.Path, name) }
	require.NoError(f.t, syscall.Mkfifo(at("pipe.yaml"), 0o600))
	require.NoError(f.t, os.Symlink("loop.yaml", at("loop.yaml")))
	require.NoError(f.t, os.Symlink("/nonexistent", at("nowhere.yaml")))
	require.NoError(f.t, os.Symlink("/dev/zero", at("zeros.yaml")))
	require.NoError(f.t, os.Symlink("/proc/kmsg", at("blocks.yaml")))
	require.NoError(f.t, os.Mkdir(at("directory.yaml"), 0o700))
	require.NoError(f.t, os.WriteFile(at("sparse.yaml"), nil, 0o600))
	require.NoError(f.t, os.Truncate(at("sparse.yaml"), 10<<30))
	require.NoError(f.t, os.WriteFile(at("secret.yaml"), []byte("a"), 0))
	listener, err := net.Listen("unix", at("socket.yaml"))
	require.NoError(f.t, err)
	defer listener.Close()

	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for text := strings.Repeat("x", 5<<20); ; text = text[:len(text)-1] {
			_ = os.WriteFile(at("restless.yaml"), []byte(text), 0o600)
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	f.checkGoodPodsRun(a, []hostile.Manifest{{Name: "last.yaml", Text: []byte("spec: [")}})
	for _, name := range []string{"loop.yaml", "nowhere.yaml", "sparse.yaml", "secret.yaml", "blocks.yaml"} {
		a.AwaitLine(timeout, "level=ERROR", name)
	}
	close(done)
	<-stopped
}

// memoryGroup is the path of a cgroup with a memory limit.
type memoryGroup string

// newMemoryGroup creates a cgroup, which is removed after its processes have exited.
func newMemoryGroup(t *testing.T) memoryGroup {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to create a cgroup")
	}
	const mount = "/sys/fs/cgroup"
	name, files := fmt.Sprintf("nodeagent-hostile-%d", os.Getpid()), []string{"memory.swap.max", "memory.max"}
	group := memoryGroup(filepath.Join(mount, name))
	if _, err := os.Stat(filepath.Join(mount, "memory", "memory.limit_in_bytes")); err == nil {
		group, files = memoryGroup(filepath.Join(mount, "memory", name)), []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	}
	if err := os.Mkdir(string(group), 0o755); err != nil {
		t.Skipf("needs a cgroup: %v", err)
	}
	t.Cleanup(func() { exetest.Eventually(t, timeout, func() error { return os.Remove(string(group)) }) })
	limited := 0
	for _, file := range files {
		value := fmt.Sprint(memoryLimit)
		if strings.Contains(file, "swap") {
			value = "0"
		}
		if os.WriteFile(filepath.Join(string(group), file), []byte(value), 0) == nil {
			limited++
		}
	}
	if limited == 0 {
		t.Skip("needs the memory controller of cgroups")
	}
	return group
}

// readField returns the number after word in the first of the files that exists, or its first number if word is empty.
func (g memoryGroup) readField(t *testing.T, word string, files ...string) (n int) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(string(g), file))
		if err != nil {
			continue
		}
		fields := append([]string{""}, strings.Fields(string(text))...)
		_, err = fmt.Sscan(fields[slices.Index(fields, word)+1], &n)
		require.NoError(t, err, file)
		return n
	}
	require.Fail(t, "none of the files exists", files)
	return 0
}

// countKills returns how many processes the kernel has killed for their memory.
func (g memoryGroup) countKills(t *testing.T) int {
	return g.readField(t, "oom_kill", "memory.oom_control", "memory.events")
}

// peak returns the largest memory usage in bytes, including caches.
func (g memoryGroup) peak(t *testing.T) int {
	return g.readField(t, "", "memory.max_usage_in_bytes", "memory.peak")
}

// resetPeak resets the peak on cgroup v1. On v2 the peak is that of all attacks so far.
func (g memoryGroup) resetPeak() {
	_ = os.WriteFile(filepath.Join(string(g), "memory.max_usage_in_bytes"), []byte("0"), 0)
}

// limitHits returns how often the limit was reached. The kernel then reclaims caches, or kills a process.
func (g memoryGroup) limitHits(t *testing.T) int {
	if _, err := os.Stat(filepath.Join(string(g), "memory.failcnt")); err == nil {
		return g.readField(t, "", "memory.failcnt")
	}
	return g.readField(t, "max", "memory.events")
}
