// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Watch has the measurements of a process with the highest priority: how late its timers fired, and the CPU time of other processes. In a virtual
// machine, timers are late if the host withholds the CPU.
type Watch struct {
	Watched time.Duration
	Late    time.Duration // sum of all delays
	Lost    time.Duration // sum of the delays above the period of a CPU quota
	Worst   time.Duration
	CPU     []CPUTime // one per Tick, or fewer
}

// CPUTime is the total CPU time up to the time At.
type CPUTime struct {
	At     time.Time
	Parent time.Duration // by the process that has started the watch
	Pods   time.Duration // by all pods
}

// quotaPeriod is the period of a CPU quota. A longer delay of timers costs a cgroup with a quota CPU time, because the kernel renews the quota only
// once. A shorter delay costs none.
const quotaPeriod = 100 * time.Millisecond

const (
	watchPeriod   = 70 * time.Millisecond
	watchPriority = 50 // of SCHED_FIFO
	podsCPU       = "/sys/fs/cgroup/kubepods/cpu.stat"
)

// String returns the shares of the watched time.
func (w Watch) String() string {
	return fmt.Sprintf("host late %.1f %%, lost %.1f %%, worst %v", 100*shareOf(w.Late, w.Watched), 100*w.LostShare(), w.Worst.Round(time.Millisecond))
}

// LostShare returns the part of the time that was lost to delays above the period of a CPU quota.
func (w Watch) LostShare() float64 { return shareOf(w.Lost, w.Watched) }

func shareOf(part, all time.Duration) float64 { return part.Seconds() / max(all, 1).Seconds() }

// StartWatch starts a watch of the machine. The returned function stops it.
func StartWatch(ctx context.Context) (stop func() (Watch, error), err error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{watchVariable + "=1"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return func() (w Watch, err error) {
		in.Close()
		if err = cmd.Wait(); err == nil {
			err = json.Unmarshal(out.Bytes(), &w)
		}
		if err != nil {
			return w, fmt.Errorf("watch: %w", err)
		}
		return w, nil
	}, nil
}

// watchMachine measures until the standard input ends, and writes a Watch. It returns the exit status.
func watchMachine() int {
	runtime.LockOSThread()
	pods, err := os.Open(podsCPU)
	if err == nil {
		err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: watchPriority}, 0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "watch:", err)
		return 1
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, os.Stdin) }()
	w := Watch{CPU: make([]CPUTime, 0, 1000)}
	began := time.Now()
	for {
		select {
		case <-ended:
			w.Watched = time.Since(began)
			if err := json.NewEncoder(os.Stdout).Encode(w); err != nil {
				return 1
			}
			return 0
		default:
		}
		if n := len(w.CPU); n == 0 || time.Since(w.CPU[n-1].At) >= Tick-watchPeriod/2 {
			w.CPU = append(w.CPU, readCPUTime(pods))
		}
		slept := time.Now()
		ts := unix.NsecToTimespec(int64(watchPeriod))
		_ = unix.Nanosleep(&ts, nil) // a signal shortens it
		late := max(time.Since(slept)-watchPeriod, 0)
		w.Late, w.Worst = w.Late+late, max(w.Worst, late)
		if late > quotaPeriod {
			w.Lost += late
		}
	}
}

// readCPUTime returns the CPU time of the parent and of the pods until now. The counters of their cgroups are exact; those of the root cgroup are
// sums of ticks.
func readCPUTime(pods *os.File) (c CPUTime) {
	c.At = time.Now()
	var ts unix.Timespec
	if unix.ClockGettime(int32(^os.Getppid()<<3|2), &ts) == nil { // its CPU time: CPUCLOCK_SCHED of linux/posix-timers.h
		c.Parent = time.Duration(ts.Nano())
	}
	text := make([]byte, 64)
	n, _ := pods.ReadAt(text, 0)
	var micros int64
	if _, err := fmt.Sscanf(string(text[:n]), "usage_usec %d", &micros); err == nil {
		c.Pods = time.Duration(micros) * time.Microsecond
	}
	return c
}
