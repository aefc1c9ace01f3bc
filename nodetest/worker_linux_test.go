// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/nodetest"
)

// Variables in the environment of a worker: the test binary as the program of a real container, which uses what an annotation says.
const (
	workerVariable = "NODETEST_WORKER"      // text of an AnnotationUsage with the fields cpu, memory and cache
	workerFile     = "NODETEST_WORKER_FILE" // file that the worker writes for its page cache
	beganSuffix    = ".began"               // suffix of the file with the times at which the workers of a pod have begun
)

const (
	workerTick  = 100 * time.Millisecond // between two evaluations of the curves
	workerBlock = 1 << 20                // bytes of memory or of the file that a worker uses or frees at once
)

// runWorker uses CPU, memory and page cache along the curves of usage until it is killed. The age of the curves begins now.
func runWorker(usage, file string) error {
	b, err := nodetest.ParseBehavior(usage, 0)
	if err != nil {
		return err
	}
	debug.FreeOSMemory() // the garbage of the initialization
	debug.SetGCPercent(-1)
	began := time.Now()
	if err := writeBegin(file+beganSuffix, began); err != nil {
		return err
	}
	var load atomic.Uint64 // bits of the CPUs to use
	go burnCPU(&load)
	var blocks [][]byte
	written := 0
	for {
		age := time.Since(began)
		amount := func(c nodetest.Curve) float64 {
			if c == nil {
				return 0
			}
			return max(c(age), 0)
		}
		load.Store(math.Float64bits(amount(b.Usage.CPU)))
		if blocks, err = resize(blocks, int(amount(b.Usage.Memory)/workerBlock)); err != nil {
			return err
		}
		if written, err = writeBlocks(file, written, int(amount(b.Usage.Cache)/workerBlock)); err != nil {
			return err
		}
		time.Sleep(workerTick)
	}
}

// writeBegin appends a time in nanoseconds to a file, as a line.
func writeBegin(file string, at time.Time) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, at.UnixNano())
	return errors.Join(err, f.Close())
}

// resize allocates or frees blocks until there are n. The kernel allocates all pages of a new block at once (Linux 5.14): page faults of single pages
// take 17 ms per MiB in User Mode Linux, 70 times as long.
func resize(blocks [][]byte, n int) ([][]byte, error) {
	for len(blocks) > n {
		last := len(blocks) - 1
		if err := unix.Munmap(blocks[last]); err != nil {
			return blocks, err
		}
		blocks = blocks[:last]
	}
	for len(blocks) < n {
		block, err := unix.Mmap(-1, 0, workerBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return blocks, err
		}
		if err := unix.Madvise(block, unix.MADV_POPULATE_WRITE); err != nil {
			return blocks, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
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
	block := make([]byte, workerBlock/16)
	for ; written < n && err == nil; written++ {
		for range 16 {
			if _, err = f.Write(block); err != nil {
				break
			}
		}
	}
	return written, errors.Join(err, f.Close())
}

// burnCPU uses load CPUs, at most one: it is busy during this part of each tick.
func burnCPU(load *atomic.Uint64) {
	runtime.LockOSThread()
	for {
		share := min(math.Float64frombits(load.Load()), 1)
		for began := time.Now(); time.Since(began).Seconds() < share*workerTick.Seconds(); { //nolint:revive // it is to use a CPU
		}
		if share < 1 {
			time.Sleep(time.Duration((1 - share) * float64(workerTick)))
		}
	}
}
