// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process"
)

// Variables in the environment of a worker.
const (
	variable      = "NODETEST_WORKER"       // its loads, see formatLoads
	fileVariable  = "NODETEST_WORKER_FILE"  // file that it writes for its page cache
	goVariable    = "NODETEST_WORKER_START" // file that starts the time of the first worker of each pod
	watchVariable = "NODETEST_WATCH"        // set: the process is a watch of the machine
)

// Suffixes of files beside that of a worker. Each worker of a pod appends a line with the present time.
const (
	readySuffix = ".ready" // it runs and waits for its start
	beganSuffix = ".began" // the time of its loads has begun
)

const (
	// Tick is the time between two loads of a worker. It is no multiple of the period of a CPU quota: otherwise the ticks of all workers meet the same
	// part of each period of another pod.
	Tick = 330 * time.Millisecond
	// Block is the number of bytes of memory or of the file that a worker uses or frees at once.
	Block = 1 << 20
)

// The initialization of the package becomes a process, before other packages are initialized.
var _ = becomeProcess()

// becomeProcess runs the process that the environment or the arguments name, and exits. Otherwise it returns true.
func becomeProcess() bool {
	process.Main()
	if os.Getenv(watchVariable) != "" {
		os.Exit(watchMachine())
	}
	if text, ok := os.LookupEnv(variable); ok {
		fmt.Fprintln(os.Stderr, runWorker(text, os.Getenv(fileVariable), os.Getenv(goVariable)))
		os.Exit(1)
	}
	return true
}

// runWorker uses CPU, memory and page cache along the loads until the process is killed. The first worker of a pod waits until the file start exists.
func runWorker(text, file, start string) error {
	loads, err := parseLoads(text)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // the garbage of the initialization
	debug.SetGCPercent(-1)
	if err := awaitStart(file, start); err != nil {
		return err
	}
	began := time.Now()
	if err := appendTime(file+beganSuffix, began); err != nil {
		return err
	}
	var cpu atomic.Uint64 // bits of the CPUs to use
	go burnCPU(&cpu)
	memory, err := openMemory()
	if err != nil {
		return err
	}
	blocks, written := 0, 0
	for {
		load := loads[min(int(time.Since(began)/Tick), len(loads)-1)]
		cpu.Store(math.Float64bits(load.CPU))
		if blocks, err = resizeMemory(memory, blocks, load.Memory); err != nil {
			return err
		}
		if written, err = writeBlocks(file, written, load.Cache); err != nil {
			return err
		}
		time.Sleep(Tick - time.Since(began)%Tick)
	}
}

// awaitStart records that the worker is ready, and waits until the file start exists. A worker that is started later does not wait.
func awaitStart(file, start string) error {
	if err := appendTime(file+readySuffix, time.Now()); err != nil {
		return err
	}
	for {
		_, err := os.Stat(start)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// appendTime appends a time in nanoseconds to a file, as a line.
func appendTime(file string, at time.Time) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, at.UnixNano())
	return errors.Join(err, f.Close())
}

// openMemory returns a file in memory. Its pages count as memory of the cgroup, not as page cache of a disk. The kernel allocates them in one call:
// page by page, User Mode Linux on a busy host needs 35 ms of CPU time per MiB.
func openMemory() (fd int, err error) { return unix.MemfdCreate("memory", unix.MFD_CLOEXEC) }

// resizeMemory changes the size of the memory file fd from blocks to n blocks. It returns n.
func resizeMemory(fd, blocks, n int) (int, error) {
	if n == blocks {
		return n, nil
	}
	err := unix.Ftruncate(fd, int64(n)*Block)
	if err == nil && n > blocks {
		err = unix.Fallocate(fd, 0, int64(blocks)*Block, int64(n-blocks)*Block)
	}
	return n, err
}

// writeBlocks appends blocks to the file until it has n. It returns the number of blocks of the file.
func writeBlocks(file string, written, n int) (int, error) {
	if written >= n {
		return written, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return written, err
	}
	block := make([]byte, Block/16)
	for ; written < n && err == nil; written++ {
		for range 16 {
			if _, err = f.Write(block); err != nil {
				break
			}
		}
	}
	return written, errors.Join(err, f.Close())
}

// burnTick is the period of burnCPU. The worker is busy for a part of each period.
const burnTick = 70 * time.Millisecond

// burnCPU uses load CPUs, at most one: it is busy for this fraction of each burnTick.
func burnCPU(load *atomic.Uint64) {
	runtime.LockOSThread()
	for {
		share := min(math.Float64frombits(load.Load()), 1)
		for began := time.Now(); time.Since(began).Seconds() < share*burnTick.Seconds(); { // use the CPU
		}
		if share < 1 {
			time.Sleep(time.Duration((1 - share) * float64(burnTick)))
		}
	}
}
