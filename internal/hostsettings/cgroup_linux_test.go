// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostsettings_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/hostsettings"
)

// cgroupVariable has the name of the cgroup that this process joins in place of running tests.
const cgroupVariable = "HOSTSETTINGS_TEST_CGROUP"

func TestMain(m *testing.M) {
	if name := os.Getenv(cgroupVariable); name != "" {
		os.Exit(joinAndPrint(name))
	}
	os.Exit(m.Run())
}

// joinAndPrint joins a cgroup and prints the cgroups of this process.
func joinAndPrint(name string) (code int) {
	logger := slog.New(slog.NewTextHandler(os.Stdout, nil))
	if err := (hostsettings.Settings{Cgroup: name}).Apply("/proc", logger); err != nil {
		fmt.Println(err)
		return 1
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	fmt.Printf("%s%v\n", text, err)
	return 0
}

// A process is in the cgroup of its settings in each hierarchy, also if a parent of the cgroup did not exist.
func TestIntegrationProcessJoinsCgroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root creates cgroups")
	}
	name := "nodeagent-join-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup/*/" + name, "/sys/fs/cgroup/" + name} {
			dirs, _ := filepath.Glob(pattern)
			for _, dir := range dirs {
				assert.NoError(t, os.Remove(filepath.Join(dir, "inner")))
				assert.NoError(t, os.Remove(dir))
			}
		}
	})
	for range 2 { // the second process finds the cgroup
		c := exec.Command("unshare", "--pid", "--fork", "--mount-proc", os.Args[0]) // the process is the first one of its PID namespace, like that of a host
		c.Env = append(os.Environ(), cgroupVariable+"=/"+name+"/inner/")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "<nil>")
		require.NotContains(t, string(out), "kubeletCgroups is not set")
		isUnified := !strings.Contains(string(out), "memory:")
		for line := range strings.Lines(string(out)) {
			controllers, path, is := strings.Cut(strings.TrimSpace(line), ":/")
			if is && (isUnified || controllers != "0:") { // on hosts with cgroup v1 the hierarchy of cgroup v2 has no controllers
				assert.Equal(t, name+"/inner", path, line)
			}
		}
	}
}

// The sets of CPUs and NUMA nodes of a new cgroup v1 are those of its parent, and the process is written into each hierarchy once.
func TestCgroupInheritsSets(t *testing.T) {
	cpuset, memory := t.TempDir(), t.TempDir()
	inner := filepath.Join(cpuset, "a/b")
	require.NoError(t, os.MkdirAll(inner, 0o700))
	for path, text := range map[string]string{
		"cpuset.cpus": "0-3\n", "cpuset.mems": "0\n", "a/cpuset.cpus": "1\n", "a/cpuset.mems": "\n", "a/b/cpuset.cpus": "", "a/b/cpuset.mems": "", "a/b/cgroup.procs": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(cpuset, path), []byte(text), 0o600))
	}
	proc := newProc(t, map[string]string{"self/mountinfo": fmt.Sprintf(`1 0 0:1 / /sys/fs/cgroup rw - tmpfs tmpfs rw
2 1 0:2 / %[1]s rw - cgroup cgroup rw,cpuset
3 1 0:2 / /elsewhere rw - cgroup cgroup rw,cpuset
4 1 0:3 /below /part rw - cgroup cgroup rw,pids
5 1 0:4 / %[2]s rw - cgroup cgroup rw,memory
6 1 0:5 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`, cpuset, memory)})
	for _, process := range []string{"1", "self"} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, process, "ns"), 0o700))
		require.NoError(t, os.Symlink("pid:[1]", filepath.Join(proc, process, "ns/pid")))
	}
	var log bytes.Buffer
	settings := hostsettings.Settings{Cgroup: "a/../a/b"}
	require.NoError(t, settings.Apply(proc, slog.New(slog.NewTextHandler(&log, nil))))
	for path, want := range map[string]string{"a/cpuset.cpus": "1\n", "a/cpuset.mems": "0\n", "a/b/cpuset.cpus": "1\n", "a/b/cpuset.mems": "0\n", "a/b/cgroup.procs": strconv.Itoa(os.Getpid())} {
		text, err := os.ReadFile(filepath.Join(cpuset, path))
		require.NoError(t, err)
		assert.Equal(t, want, string(text), path)
	}
	assert.Contains(t, log.String(), "kubeletCgroups is not set", "the directory in the place of the hierarchy memory has no file cgroup.procs")
	assert.Contains(t, log.String(), filepath.Join(memory, "a/b/cgroup.procs"))

	// The process of a container that sees the processes of the host stays in the cgroup of the container.
	require.NoError(t, os.Remove(filepath.Join(proc, "self/ns/pid")))
	require.NoError(t, os.Symlink("pid:[2]", filepath.Join(proc, "self/ns/pid")))
	require.NoError(t, os.RemoveAll(cpuset))
	log.Reset()
	require.NoError(t, settings.Apply(proc, slog.New(slog.NewTextHandler(&log, nil))))
	assert.Empty(t, log.String())
	require.NoDirExists(t, cpuset)
}
