// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package projquota limits the size of a directory by a project quota of its file system: ext4 with prjquota, or xfs with pquota.
// New files in the directory inherit its project. The package scans no directory and changes no existing file.
//
// If the file system, the kernel (before Linux 5.14) or a missing privilege prevents it, the error wraps errors.ErrUnsupported,
// and nothing has changed.
//
// Test kit: none; the tests create a file system on a loop device, which has quotas in hack/vm.
package projquota

import (
	"math/rand/v2"
	"sync"
)

// Range of project IDs that are assigned. The kubelet starts at the same number; lower IDs belong to the administrator.
const (
	FirstID = 1 << 20
	lastID  = 1<<31 - 1
)

// Usage is the disk usage of a directory and its limit.
type Usage struct {
	Bytes, Inodes uint64
	Limit         uint64 // in bytes; zero: no limit
}

// Projects assigns project IDs to directories. The zero value is ready to use, one per agent. Its methods are safe for concurrent
// use.
type Projects struct {
	// Rand returns the first ID that is checked for being free. Nil means math/rand/v2.
	Rand func() uint32

	mu sync.Mutex // held from finding a free ID until a directory has it
}

// firstCandidate returns a random project ID, at which the search for a free ID starts.
func (p *Projects) firstCandidate() uint32 {
	if p.Rand == nil {
		return rand.Uint32()
	}
	return p.Rand()
}

// Limit limits the disk usage of the directory dir to bytes, rounded up to 1 KiB. The first call for dir assigns a project
// ID, and requires that dir is empty.
func (p *Projects) Limit(dir string, bytes uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setLimit(dir, bytes)
}

// UsageOf returns the disk usage of a directory for which Limit was called. For a directory without a limit, the error
// wraps errors.ErrUnsupported.
func UsageOf(dir string) (Usage, error) { return usageOf(dir) }

// ProjectOf returns the project ID that Limit has assigned to the directory dir, or zero if there is none. To remove the
// directory, call ProjectOf, then remove the directory, and then pass the ID to [Release].
func ProjectOf(dir string) (id uint32) { return projectOf(dir) }

// Release removes the limit of the project id after its directory was removed. dir is any directory on the same file
// system. An id outside of the range of this package is ignored.
func Release(dir string, id uint32) error {
	if id < FirstID || id > lastID {
		return nil
	}
	return releaseProject(dir, id)
}
