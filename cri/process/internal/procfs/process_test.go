// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package procfs_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

const tail = " 12 34 34 0 -1 4194560 100 0 0 0 7 5 3 2 20 0 4 0 8123456 10000000 321 18446744073709551615 1 1 0\n"

func TestParseStat(t *testing.T) {
	want := procfs.Process{PID: 34, Parent: 12, Start: 8123456, CPU: 17, RSS: 321}
	for _, name := range []string{"sleep", "a b", ") S 1 (", "x\ny", ""} {
		got, err := procfs.ParseStat([]byte("34 (" + name + ") S" + tail))
		require.NoError(t, err, "%q", name)
		assert.Equal(t, want, got, "%q", name)
	}
	got, err := procfs.ParseStat([]byte("34 (sleep) Z" + tail))
	require.NoError(t, err)
	assert.True(t, got.Zombie)
}

func TestParseStatBroken(t *testing.T) {
	for _, stat := range []string{"", "34", "34 (sleep", ") 34 (", "x (sleep) S" + tail, "34 (sleep) S 1 2 3", "34 (sleep) S x" + tail} {
		_, err := procfs.ParseStat([]byte(stat))
		assert.Error(t, err, "%q", stat)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("34 (sleep) S" + tail)
	f.Fuzz(func(t *testing.T, stat string) {
		p, err := procfs.ParseStat([]byte(stat))
		if err == nil {
			require.GreaterOrEqual(t, p.Parent, 0)
		}
	})
}

func TestDescendants(t *testing.T) {
	process := func(pid, parent int) procfs.Process { return procfs.Process{PID: pid, Parent: parent} }
	tree := procfs.NewTree([]procfs.Process{
		process(2, 1), process(3, 2), process(4, 3), process(5, 2), process(6, 1),
		process(8, 9), process(9, 8), // a cycle, as reused PIDs can produce
	})
	pids := func(of int) (pids []int) {
		for _, p := range tree.Descendants(of) {
			pids = append(pids, p.PID)
		}
		return pids
	}
	assert.Equal(t, []int{3, 5, 4}, pids(2))
	assert.Empty(t, pids(6))
	assert.Equal(t, []int{9}, pids(8))
}

func TestKill(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p, err := procfs.ReadProcess(cmd.Process.Pid)
	require.NoError(t, err)
	assert.Equal(t, os.Getpid(), p.Parent)

	earlier := p
	earlier.Start--
	require.NoError(t, procfs.Kill(earlier), "success, because the earlier process with this PID has exited")
	select {
	case <-ended:
		require.Fail(t, "Kill killed another process that reused the PID")
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, procfs.Kill(p))
	<-ended
	require.NoError(t, procfs.Kill(p), "success, because the process has exited")
}

func TestHasEnv(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{"A=1", "B=2"}
	require.NoError(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	// Start returns in the middle of exec, when the process has no environment yet.
	require.Eventually(t, func() bool { return procfs.HasEnv(cmd.Process.Pid, "B=2") }, time.Minute, time.Millisecond)
	assert.False(t, procfs.HasEnv(cmd.Process.Pid, "B="))
	all, err := procfs.ListProcesses()
	require.NoError(t, err)
	tree := procfs.NewTree(all)
	var found bool
	for _, p := range tree.Descendants(os.Getpid()) {
		found = found || strconv.Itoa(p.PID) == strconv.Itoa(cmd.Process.Pid)
	}
	assert.True(t, found)
}
