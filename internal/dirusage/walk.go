// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package dirusage adds up what the files of a directory take: on the file system that the directory is on, through no link,
// and a file with several names once. What is mounted there is not counted. A walk takes a bounded part of a CPU, if told so,
// and a bounded number of descriptors and of bytes.
package dirusage

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// Usage is what files take.
type Usage struct {
	Bytes  uint64 // in blocks, so that a sparse file takes little
	Inodes uint64
}

// Bounds of a walk. What is below the last level is not counted, and is an error beside what was; a file with several names
// counts once as long as no more than maxLinked such files are known, and after that for a part with each name.
const (
	maxLevels = 10_000
	maxOpen   = 256 // levels whose directories stay open; those below are opened again through their subdirectories
	maxLinked = 1 << 18
)

// Walk is one walk. The zero value counts all that is below a path, as fast as it can. Run is called once.
type Walk struct {
	Pace *Pace  // nil: no limit
	Flat bool   // the files directly in it alone, without the directory itself
	Buf  []byte // for entries of directories, of dirent.BufferSize; nil: Run makes one

	Usage      // what was counted, also where Run fails
	Deep  bool // something was below the last level, so that Run fails

	steps  atomic.Uint64
	device [2]uint32
	linked map[uint64]struct{} // inodes of files with several names
}

// Steps grows while a walk goes on. It may be called at any time.
func (w *Walk) Steps() uint64 { return w.steps.Load() }

// count adds a file, given its blocks of 512 bytes and the number of its names.
func (w *Walk) count(inode, blocks, names uint64, directory bool) {
	bytes := min(blocks, math.MaxUint64/512) * 512
	if names > 1 && !directory {
		if _, counted := w.linked[inode]; counted {
			return
		}
		if len(w.linked) < maxLinked {
			if w.linked == nil {
				w.linked = map[uint64]struct{}{}
			}
			w.linked[inode] = struct{}{}
		} else {
			bytes /= names
		}
	}
	w.Bytes += min(bytes, math.MaxUint64-w.Bytes)
	w.Inodes++
}

// step is called between a few files: it waits where the pace says so, and returns the error of ctx.
func (w *Walk) step(ctx context.Context) error {
	w.steps.Add(1)
	if w.Pace == nil {
		return ctx.Err()
	}
	return w.Pace.step(ctx)
}

// Pace keeps walks within a part of one CPU: they work for a moment, and then sleep as long as makes it that part. What it
// takes for work is the time that passes, so that waiting for a disk counts too. It is used by one goroutine at a time.
type Pace struct {
	Part  float64 // of one CPU: more than 0, and 1 for no limit
	began time.Time
}

// MaxSleep is the longest time in which a walk makes no steps because of its pace.
const MaxSleep = 2 * time.Second

// burst is how long a walk works at a time.
const burst = 10 * time.Millisecond

// step sleeps when it is time to, unless ctx ends, whose error it returns.
func (p *Pace) step(ctx context.Context) error {
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	worked := now.Sub(p.began)
	if worked >= burst && p.Part < 1 {
		rest := min(time.Duration(float64(worked)*(1/p.Part-1)), MaxSleep)
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		p.began = time.Now()
	}
	return ctx.Err()
}
