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

// Filesystem is the size and free space of a file system. AvailableBytes is the space available to processes without root
// privileges.
type Filesystem struct {
	CapacityBytes, AvailableBytes, FreeBytes uint64
	Inodes, InodesFree                       uint64 // zero if the number of inodes is unlimited
	Device                                   uint64 // device number of stat(2); zero if unknown
}

// UsedBytes returns CapacityBytes minus FreeBytes.
func (f Filesystem) UsedBytes() uint64 { return f.CapacityBytes - min(f.FreeBytes, f.CapacityBytes) }

// inodesUsed returns the number of used inodes.
func (f Filesystem) inodesUsed() uint64 { return f.Inodes - min(f.InodesFree, f.Inodes) }

// fsMeasurement is the result of statfs on a file system, with its time.
type fsMeasurement struct {
	filesystem Filesystem
	at         time.Time
}

// filesystems calls statfs for file systems. At most one call per path is running, because a call may hang. The field statfs must
// be set.
type filesystems struct {
	statfs func(path string) (Filesystem, error)

	mu    sync.Mutex
	calls map[string]*sharedCall[fsMeasurement]
}

// startStatfs starts a statfs call for path, or returns the running one. It returns nil if maxFilesystems other calls hang.
func (d *filesystems) startStatfs(path string) *pendingCall[fsMeasurement] {
	s := d.callFor(path)
	if s == nil {
		return nil
	}
	return s.startCall(func() (fsMeasurement, error) {
		at := time.Now()
		f, err := d.statfs(path)
		return fsMeasurement{f, at}, err
	})
}

// awaitStatfs waits for the result of startStatfs, until the call has been running for timeout or ctx ends.
func (d *filesystems) awaitStatfs(ctx context.Context, p *pendingCall[fsMeasurement], timeout time.Duration) (fsMeasurement, error) {
	if p == nil {
		return fsMeasurement{}, errors.New("too many file systems do not answer")
	}
	return p.waitResult(ctx, timeout)
}

// maxFilesystems limits the number of paths in filesystems.calls, because a runtime may report any number of paths.
const maxFilesystems = 64

// callFor returns the shared statfs call for path, which it creates at the first use. If maxFilesystems other calls hang, it
// returns nil.
func (d *filesystems) callFor(path string) *sharedCall[fsMeasurement] {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.calls[path]
	if s != nil {
		return s
	}
	if len(d.calls) >= maxFilesystems {
		maps.DeleteFunc(d.calls, func(_ string, s *sharedCall[fsMeasurement]) bool { return s.pendingDuration() == 0 })
	}
	if len(d.calls) >= maxFilesystems {
		return nil
	}
	if d.calls == nil {
		d.calls = map[string]*sharedCall[fsMeasurement]{}
	}
	s = &sharedCall[fsMeasurement]{}
	d.calls[path] = s
	return s
}

// listHung calls add(path, since) for each file system whose statfs call has been running for longer than threshold. since
// is the running time of the call.
func (d *filesystems) listHung(threshold time.Duration, add func(path string, since time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, s := range d.calls {
		if since := s.pendingDuration(); since > threshold {
			add(path, since)
		}
	}
}

// Filesystems returns the size and free space of the file system of each path. It waits for all statfs calls at most
// [Options].Timeout. The error names the paths whose call failed or hangs; they are missing in the result. A hung call is not
// repeated before it returns.
func (k *Collector) Filesystems(ctx context.Context, paths []string) (map[string]Filesystem, error) {
	var errs failures
	calls := make([]*pendingCall[fsMeasurement], len(paths))
	for i, path := range paths {
		calls[i] = k.filesystems.startStatfs(path)
	}
	all := make(map[string]Filesystem, len(paths))
	for i, path := range paths {
		m, err := k.filesystems.awaitStatfs(ctx, calls[i], k.opts.Timeout)
		if err == nil {
			all[path] = m.filesystem
		} else if !isRemoved(err) {
			errs.addError("filesystem", path, err)
		}
	}
	return all, errs.joinErrors()
}
