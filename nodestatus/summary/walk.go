// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package summary

import (
	"context"
	"sync/atomic"
	"time"
)

// usage is what files take.
type usage struct {
	Bytes, Inodes uint64
}

// Bounds of a walk. What is below the last level is not counted, and is an error beside what was; a file with several names
// counts once as long as no more than maxLinked such files are known, and after that for a part with each name.
const (
	maxLevels = 256
	maxLinked = 1 << 18
)

// walk adds up the files of a directory, on the file system that the directory is on and through no link.
type walk struct {
	pace *pace
	flat bool   // the files directly in it alone, without the directory itself
	buf  []byte // for entries of directories; nil: run makes one

	usage
	steps  atomic.Uint64 // grows while it goes on
	device uint64
	linked map[uint64]struct{} // inodes of files with several names
	deep   bool                // something was below the last level
}

// count adds a file, given its blocks of 512 bytes and the number of its names.
func (w *walk) count(inode, blocks, names uint64, directory bool) {
	bytes := mul(blocks, 512)
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
	w.Bytes, w.Inodes = add(w.Bytes, bytes), add(w.Inodes, 1)
}

// step is called between a few files: it waits where the budget says so, and returns the error of ctx.
func (w *walk) step(ctx context.Context) error {
	w.steps.Add(1)
	return w.pace.step(ctx)
}

// pace keeps work within a part of one CPU: it works for a moment, and then sleeps as long as makes it that part. What it
// takes for work is the time that passes, so that waiting for a disk counts too. It is used by one goroutine at a time.
type pace struct {
	part  float64 // of one CPU: more than 0, and 1 for no limit
	began time.Time
}

const (
	paceBurst = 10 * time.Millisecond
	paceSleep = 2 * time.Second // the longest
)

// step sleeps when it is time to, unless ctx ends, whose error it returns.
func (p *pace) step(ctx context.Context) error {
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	worked := now.Sub(p.began)
	if worked >= paceBurst && p.part < 1 {
		rest := min(time.Duration(float64(worked)*(1/p.part-1)), paceSleep)
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
