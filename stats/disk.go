// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

// Filesystem is how large a file system is, and how much of it is free. Available is what others than root can take.
type Filesystem struct {
	CapacityBytes, AvailableBytes, FreeBytes uint64
	Inodes, InodesFree                       uint64 // zero where it has no limit of inodes
	Device                                   uint64 // which one it is, as stat(2) says; zero where nobody knows
}

// UsedBytes returns what is taken.
func (f Filesystem) UsedBytes() uint64 { return f.CapacityBytes - min(f.FreeBytes, f.CapacityBytes) }

// inodesUsed returns the number of used inodes.
func (f Filesystem) inodesUsed() uint64 { return f.Inodes - min(f.InodesFree, f.Inodes) }

// measured is a file system at a time.
type measured struct {
	Filesystem
	at time.Time
}

// disks asks file systems how full they are, each on its own. The zero value is not ready: statfs is what asks.
type disks struct {
	statfs func(path string) (Filesystem, error)

	mu    sync.Mutex
	slots map[string]*slot[measured]
}

// begin asks a file system, unless somebody has and waits for the answer. It returns nil where that would be one too
// many.
func (d *disks) begin(path string) *pending[measured] {
	s := d.slot(path)
	if s == nil {
		return nil
	}
	return s.start(func() (measured, error) {
		at := time.Now()
		f, err := d.statfs(path)
		return measured{f, at}, err
	})
}

// ask returns what a file system says that was asked with begin, within the time.
func (d *disks) ask(ctx context.Context, p *pending[measured], wait time.Duration) (measured, error) {
	if p == nil {
		return measured{}, errors.New("too many file systems do not answer")
	}
	return p.wait(ctx, wait)
}

// maxDisks is how many file systems are remembered. A runtime that names another one each time is not to fill memory.
const maxDisks = 64

// slot returns what asks a file system, nil where that would be one too many.
func (d *disks) slot(path string) *slot[measured] {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.slots[path]
	if s != nil {
		return s
	}
	if len(d.slots) >= maxDisks {
		maps.DeleteFunc(d.slots, func(_ string, s *slot[measured]) bool { return s.pendingFor() == 0 })
	}
	if len(d.slots) >= maxDisks {
		return nil
	}
	if d.slots == nil {
		d.slots = map[string]*slot[measured]{}
	}
	s = &slot[measured]{}
	d.slots[path] = s
	return s
}

// hanging adds the file systems that do not answer to a list, by their paths.
func (d *disks) hanging(longer time.Duration, add func(path string, since time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, s := range d.slots {
		if since := s.pendingFor(); since > longer {
			add(path, since)
		}
	}
}

// Filesystems asks file systems how full they are, by the paths of their mount points, all at once and each for [Options].Wait at
// most. One that does not answer is missing, and named by the error; it is asked again when the kernel gives the call back.
func (k *Collector) Filesystems(ctx context.Context, paths []string) (map[string]Filesystem, error) {
	var f failures
	calls := make([]*pending[measured], len(paths))
	for i, path := range paths {
		calls[i] = k.disks.begin(path)
	}
	all := make(map[string]Filesystem, len(paths))
	for i, path := range paths {
		m, err := k.disks.ask(ctx, calls[i], k.opts.Timeout)
		if err == nil {
			all[path] = m.Filesystem
		} else if !gone(err) {
			f.add("filesystem", path, err)
		}
	}
	return all, f.join()
}
