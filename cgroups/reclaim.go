// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// Reclaimer is the optional capability of a writer to take memory back from a cgroup before anybody runs out of it.
type Reclaimer interface {
	// Reclaim has the kernel take back so many bytes from p and below: page cache and slabs that it can read or make
	// again, and what it can swap (memory.reclaim, since Linux 5.19). It returns how many it took at least, which is less
	// than asked where there is no more. It goes in steps: when ctx ends, what was freed so far comes with the error.
	// On v1, and on kernels without the file, the error wraps [errors.ErrUnsupported].
	Reclaim(ctx context.Context, p Path, bytes uint64) (freed uint64, err error)
}
