// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirusage measures the disk usage of a directory. It stays on its file system, follows no links and counts a file with
// several names once. Mounts are not counted. A measurement can be limited to a fraction of a CPU, and uses a bounded number of
// descriptors and bytes.
package dirusage

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// Usage is the disk usage of files.
type Usage struct {
	Bytes  uint64 // allocated blocks, so that a sparse file counts little
	Inodes uint64
}

// Limits of a measurement. If there are directories deeper than maxLevels, they are not counted, and Run fails. The first
// maxLinked files with several hard links count once each. Every further one counts at each of its links, with a fraction of its
// bytes.
const (
	maxLevels = 10_000
	maxOpen   = 256 // levels whose directories stay open; deeper directories are reopened through a subdirectory
	maxLinked = 1 << 18
)

// Walk is one measurement of a directory. The zero value measures everything below a path at full speed. Run may be called once.
type Walk struct {
	Pace *Pace  // nil: full speed
	Flat bool   // only the files directly in the directory, not the directory itself
	Buf  []byte // for directory entries, of dirent.BufferSize; nil: Run allocates it

	Usage        // the result, also if Run fails
	TooDeep bool // directories below the last level were skipped; Run then fails

	steps  atomic.Uint64
	device [2]uint32
	linked map[uint64]struct{} // inodes of files with several names
}

// Steps returns a number that grows while Run makes progress. If it stops growing, the file system may hang. Steps is safe
// for concurrent use.
func (w *Walk) Steps() uint64 { return w.steps.Load() }

// countFile adds one file to w.Bytes and w.Inodes. blocks has units of 512 bytes. A file with several hard links is counted
// once.
func (w *Walk) countFile(inode, blocks, links uint64, directory bool) {
	bytes := min(blocks, math.MaxUint64/512) * 512
	if links > 1 && !directory {
		if _, counted := w.linked[inode]; counted {
			return
		}
		if len(w.linked) < maxLinked {
			if w.linked == nil {
				w.linked = map[uint64]struct{}{}
			}
			w.linked[inode] = struct{}{}
		} else {
			// Too many such files to remember: each link counts as a file with its share of the bytes.
			bytes /= links
		}
	}
	w.Bytes += min(bytes, math.MaxUint64-w.Bytes)
	w.Inodes++
}

// takeStep increments the number that [Walk.Steps] returns. If w.Pace is set, it then sleeps as long as w.Pace requires. If
// ctx ends, it returns the error of ctx.
func (w *Walk) takeStep(ctx context.Context) error {
	w.steps.Add(1)
	if w.Pace == nil {
		return ctx.Err()
	}
	return w.Pace.sleepIfDue(ctx)
}

// Pace limits measurements to a fraction of a CPU: after each short period of work they sleep. The time in which a measurement
// waits for a disk counts as work. One goroutine at a time can use a Pace.
type Pace struct {
	CPUFraction float64 // more than 0; 1 means no limit
	workStarted time.Time
}

// MaxSleep is the longest time for which a measurement sleeps at once because of its Pace.
const MaxSleep = 2 * time.Second

// workPeriod is the time for which a measurement works before it sleeps.
const workPeriod = 10 * time.Millisecond

// sleepIfDue sleeps often enough that the walk uses at most p.CPUFraction of a CPU.
func (p *Pace) sleepIfDue(ctx context.Context) error {
	now := time.Now()
	if p.workStarted.IsZero() {
		p.workStarted = now
	}
	worked := now.Sub(p.workStarted)
	if worked >= workPeriod && p.CPUFraction < 1 {
		rest := min(time.Duration(float64(worked)*(1/p.CPUFraction-1)), MaxSleep)
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		p.workStarted = time.Now()
	}
	return ctx.Err()
}
