// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hostsettings_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/hostsettings"
)

const (
	swapHeading = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	cgroupV1    = "30 24 0:26 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro\n31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	cgroupV2    = "30 24 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n"
)

// newProc returns a directory with these files, in the place of /proc.
func newProc(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// kernelDefaults returns the parameters of a kernel that no kubelet has changed.
func kernelDefaults() map[string]string {
	return map[string]string{
		"sys/vm/overcommit_memory": "0\n", "sys/vm/panic_on_oom": "0\n", "sys/kernel/panic": "0\n", "sys/kernel/panic_on_oops": "0\n",
		"sys/kernel/keys/root_maxkeys": "1000000\n", "sys/kernel/keys/root_maxbytes": "25000000\n", "self/uid_map": "         0          0 4294967295\n",
	}
}

func TestApplyRefusesMachinesByField(t *testing.T) {
	swapOn, checks := hostsettings.Settings{FailSwapOn: true}, hostsettings.Settings{CheckParameters: true, ChangeParameters: true}
	v1 := hostsettings.Settings{FailCgroupV1: true}
	for _, c := range []struct {
		name     string
		settings hostsettings.Settings
		files    map[string]string
		want     string // empty: accepted
	}{
		{"no swap", swapOn, map[string]string{"swaps": swapHeading}, ""},
		{"a kernel without swap", swapOn, nil, ""},
		{"an empty file", swapOn, map[string]string{"swaps": ""}, ""},
		{
			"swap", swapOn,
			map[string]string{"swaps": swapHeading + "/dev/sda2                               partition\t8388604\t0\t-2\n"},
			`failSwapOn: true, but the machine has swap: "/dev/sda2                               partition": disable it, or set failSwapOn to false`,
		},
		{"swap is permitted", hostsettings.Settings{}, map[string]string{"swaps": swapHeading + "/swap\tfile\n"}, ""},
		{"cgroup v2", v1, map[string]string{"self/mountinfo": cgroupV2}, ""},
		{"cgroup v2 over v1", v1, map[string]string{"self/mountinfo": cgroupV1 + cgroupV2}, ""},
		{"cgroup v1", v1, map[string]string{"self/mountinfo": cgroupV1}, `failCgroupV1: true, but the host has cgroup v1: /sys/fs/cgroup is of type "tmpfs"`},
		{"cgroup v1 is permitted", hostsettings.Settings{}, map[string]string{"self/mountinfo": cgroupV1}, ""},
		{
			"kernel parameters", checks, kernelDefaults(), `protectKernelDefaults: true, but kernel parameter kernel/panic is "0", want 10
protectKernelDefaults: true, but kernel parameter kernel/panic_on_oops is "0", want 1
protectKernelDefaults: true, but kernel parameter vm/overcommit_memory is "0", want 1`,
		},
		{"an unreadable parameter", checks, nil, "protectKernelDefaults: open "},
	} {
		err := c.settings.Apply(newProc(t, c.files), nil)
		if c.want == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.want, c.name)
		}
	}
}

// Changed parameters are those of the kubelet, and pass its check.
func TestApplyChangesKernelParameters(t *testing.T) {
	proc := newProc(t, kernelDefaults())
	var log bytes.Buffer
	require.NoError(t, hostsettings.Settings{ChangeParameters: true}.Apply(proc, slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, hostsettings.Settings{CheckParameters: true}.Apply(proc, nil))
	assert.Equal(t, 3, strings.Count(log.String(), "set a kernel parameter"), "a parameter with its value is not written")
	text, err := os.ReadFile(filepath.Join(proc, "sys/kernel/panic"))
	require.NoError(t, err)
	assert.Equal(t, "10", strings.TrimSpace(string(text)))
}

// A parameter that cannot be set is an error, but not in a user namespace, where the host has set it.
func TestApplyReportsParametersThatCannotBeSet(t *testing.T) {
	for uidMap, refused := range map[string]bool{"0 0 4294967295\n": true, "0 100000 65536\n": false} {
		files := kernelDefaults()
		files["self/uid_map"] = uidMap
		proc := newProc(t, files)
		panicOnOops := filepath.Join(proc, "sys/kernel/panic_on_oops")
		require.NoError(t, os.Remove(panicOnOops))
		require.NoError(t, os.Symlink("/proc/version", panicOnOops)) // a file that only the kernel writes
		err := hostsettings.Settings{ChangeParameters: true}.Apply(proc, nil)
		if refused {
			require.ErrorContains(t, err, "protectKernelDefaults: false, but kernel parameter kernel/panic_on_oops cannot be set to 1: ")
		} else {
			require.NoError(t, err)
		}
	}
}

// The process gets its OOM score adjustment and its limit of open files. Values that cannot be set are logged.
func TestApplySetsLimitsOfTheProcess(t *testing.T) {
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	proc := newProc(t, map[string]string{"self/oom_score_adj": "0"})
	require.NoError(t, hostsettings.Settings{OOMScoreAdj: new(int32(-999)), MaxOpenFiles: before.Max}.Apply(proc, nil))
	text, err := os.ReadFile(filepath.Join(proc, "self/oom_score_adj"))
	require.NoError(t, err)
	assert.Equal(t, "-999", string(text))
	var after unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &after))
	assert.Equal(t, unix.Rlimit{Cur: before.Max, Max: before.Max}, after)

	var log bytes.Buffer
	impossible := hostsettings.Settings{OOMScoreAdj: new(int32(5)), MaxOpenFiles: 1 << 40} // above fs.nr_open
	require.NoError(t, impossible.Apply(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil))))
	assert.Contains(t, log.String(), "oomScoreAdj is not set")
	assert.Contains(t, log.String(), "maxOpenFiles is not set")
}
