// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// While busy processes compete with the VM for one CPU, work takes less time of the clock of the VM, and an idle second takes a second. Each
// process has a session of its own, because the kernel may divide the CPU by sessions.
func TestIntegrationClockExcludesOtherPrograms(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv("IN_TEST_VM") != "" {
		t.Skip("needs root, outside of a VM")
	}
	if cached, _ := filepath.Glob("../../.lab/vm/uml-*"); len(cached) == 0 {
		t.Skip("would download a kernel: run `hack/vm/uml true` once")
	}
	restore := useOneCPU(t)
	for range 4 {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Wait() }) // killed at the end of the context
	}
	const script = `cat /proc/uptime; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; cat /proc/uptime; sleep 3; cat /proc/uptime`
	cmd := kernel("uml").command(t, []string{"VM_CLOCK=own"}, "sh", "-c", script)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	restore()
	var own, host []float64 // seconds
	began := time.Now()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		uptime, _, _ := strings.Cut(lines.Text(), " ")
		seconds, err := strconv.ParseFloat(uptime, 64)
		require.NoError(t, err)
		own, host = append(own, seconds), append(host, time.Since(began).Seconds())
	}
	require.NoError(t, cmd.Wait())
	require.Len(t, own, 3)
	t.Logf("work: %.1f s of %.1f s; sleep: %.1f s of %.1f s", own[1]-own[0], host[1]-host[0], own[2]-own[1], host[2]-host[1])
	assert.Less(t, own[1]-own[0], 0.8*(host[1]-host[0]), "work")
	assert.InDelta(t, 3, own[2]-own[1], 1, "sleep, and the start of two programs")
	assert.GreaterOrEqual(t, host[2]-host[1], 2.9, "the clock is not fast")
}

// The scheduler of User Mode Linux charges processes in nanoseconds, and not in ticks of 10 ms as without the library that it is loaded with.
func TestIntegrationSchedulerChargesNanoseconds(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv("IN_TEST_VM") != "" {
		t.Skip("needs root, outside of a VM")
	}
	if cached, _ := filepath.Glob("../../.lab/vm/uml-*"); len(cached) == 0 {
		t.Skip("would download a kernel: run `hack/vm/uml true` once")
	}
	out, err := kernel("uml").command(t, nil, "sh", "-c", "for i in 1 2 3; do cat /proc/self/schedstat; done").Output()
	require.NoError(t, err)
	const tick = 10_000_000 // nanoseconds
	partial := 0
	for line := range strings.Lines(string(out)) {
		used, _, _ := strings.Cut(line, " ")
		ns, err := strconv.ParseInt(used, 10, 64)
		require.NoError(t, err)
		if ns%tick != 0 {
			partial++
		}
	}
	assert.Equal(t, 3, partial, "CPU times that are no multiples of a tick:\n%s", out)
}

// useOneCPU runs the goroutine, and the programs that it starts, on one CPU, until the caller or the end of the test restores all CPUs for
// programs that start later.
func useOneCPU(t *testing.T) (restore func()) {
	runtime.LockOSThread()
	var before, one unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &before))
	for cpu := 0; one.Count() == 0; cpu++ {
		if before.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	require.NoError(t, unix.SchedSetaffinity(0, &one))
	restore = sync.OnceFunc(func() {
		assert.NoError(t, unix.SchedSetaffinity(0, &before))
		runtime.UnlockOSThread()
	})
	t.Cleanup(restore)
	return restore
}
