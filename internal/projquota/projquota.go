// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package projquota limits how much a directory holds, by a project quota of its file system: ext4 with prjquota, or xfs with pquota.
// The directory gets a project of its own, which what is made in it inherits. It walks no tree, and changes no file that is there
// already.
//
// Where the file system, the kernel (before Linux 5.14) or a missing privilege do not let it, the error wraps
// errors.ErrUnsupported, and nothing has changed.
//
// Test kit: none; the tests make a file system on a loop device, which has quotas in hack/vm.
package projquota

import (
	"math/rand/v2"
	"sync"
)

// The IDs of projects that are given out. The kubelet begins at the same number; those below belong to the administrator.
const (
	FirstID = 1 << 20
	lastID  = 1<<31 - 1
)

// Usage is how much a directory holds, and may hold.
type Usage struct {
	Bytes, Inodes uint64
	Limit         uint64 // bytes; zero: there is none
}

// Projects gives out projects. The zero value is ready, one for each agent. Its methods may be called from any goroutine.
type Projects struct {
	// Rand returns where to look for an ID that nobody has. Nil means math/rand/v2.
	Rand func() uint32

	mu sync.Mutex // held from when an ID is found until a directory has it
}

// start returns an ID to begin with.
func (p *Projects) start() uint32 {
	if p.Rand == nil {
		return rand.Uint32()
	}
	return p.Rand()
}

// Limit lets a directory hold that many bytes at most, rounded up to 1 KiB. One that has no project of its own yet has to be empty.
func (p *Projects) Limit(dir string, bytes uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit(dir, bytes)
}

// UsageOf returns what a directory holds that was given a limit. For any other one the error wraps errors.ErrUnsupported.
func UsageOf(dir string) (Usage, error) { return usageOf(dir) }

// Of returns the project that a directory was given, or zero. Whoever removes the directory asks before.
func Of(dir string) (id uint32) { return projectOf(dir) }

// Release takes the limit from a project whose directory was removed. It is given a directory on the same file system. A project
// that was not given out here is left alone.
func Release(dir string, id uint32) error {
	if id < FirstID || id > lastID {
		return nil
	}
	return release(dir, id)
}
