// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

// observation has the fields of an output line that the test checks.
type observation struct {
	Readings   []struct{ Signal string }
	Conditions []string
	Evict      []struct{ Name, Message string }
	Pods       int
}

func observe(t *testing.T, args ...string) (out observation) {
	p := program.Start(t, append(args, "-once")...)
	require.Zero(t, p.Wait(20*time.Second), p.Output())
	require.NoError(t, json.Unmarshal([]byte(p.Output()), &out), p.Output())
	return out
}

// The program prints its readings, and a condition if less memory is available than the threshold.
func TestObserve(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		t.Skip("there are no cgroups here:", err)
	}
	calm := observe(t, "-memory", "1", "-disk", "1")
	require.Len(t, calm.Readings, 2)
	require.Empty(t, calm.Conditions)
	require.Empty(t, calm.Evict)

	starved := observe(t, "-memory", "1Ei", "-disk", "1")
	require.Equal(t, []string{"MemoryPressure"}, starved.Conditions)
}

// The cgroup that uses more memory is the victim.
func TestVictim(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to create cgroups")
	}
	whole, err := driver.Open(t.Context(), driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	if err != nil || !whole.Host().HasController("memory") {
		t.Skip("no cgroups that count memory: ", err)
	}
	root := cgroups.Path(fmt.Sprintf("nodeagent-test-evictor-%d", os.Getpid()))
	t.Cleanup(func() {
		require.NoError(t, whole.Remove(context.WithoutCancel(t.Context()), root))
		require.NoError(t, whole.Close())
	})
	for _, name := range []string{"large", "small"} {
		require.NoError(t, whole.Apply(t.Context(), root.Join(name), cgroups.Resources{}))
	}
	useMemory(t, whole, root.Join("large"))
	seen := observe(t, "-cgroup", "/"+string(root), "-memory", "1Ei", "-disk", "1")
	require.Equal(t, 2, seen.Pods)
	require.Len(t, seen.Evict, 1)
	require.Equal(t, "large", seen.Evict[0].Name)
	require.Contains(t, seen.Evict[0].Message, "The node was low on resource: memory. Threshold quantity: 1Ei")
}

// useMemory starts a process that uses 20 MB in a cgroup until the test ends.
func useMemory(t *testing.T, d *driver.Driver, p cgroups.Path) {
	t.Helper()
	// The shell waits until it is in the cgroup. dd keeps its data in memory, because sleep does not read it.
	cmd := exec.Command("sh", "-c", "read go; dd if=/dev/zero bs=20000000 count=1 2>/dev/null | sleep 1000")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	dirs := slices.Sorted(maps.Values(d.Host().Dirs))
	for _, dir := range slices.Compact(dirs) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(p), "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	_, err = stdin.Write([]byte("go\n"))
	require.NoError(t, err)
	exetest.Eventually(t, 20*time.Second, func() error {
		s, err := d.Stats(context.WithoutCancel(t.Context()), p)
		if err == nil && s.Memory.Current < 20_000_000 {
			err = fmt.Errorf("%d bytes are in use", s.Memory.Current)
		}
		return err
	})
}

func TestBadThreshold(t *testing.T) {
	p := program.Start(t, "-memory", "much")
	require.Equal(t, 1, p.Wait(20*time.Second))
	require.Contains(t, p.Output(), `evictionHard["memory.available"]: "much": not a quantity`)
}
