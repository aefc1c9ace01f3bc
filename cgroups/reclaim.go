// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// Reclaimer is an optional interface of a [CgroupWriter]: it makes the kernel free memory of a cgroup before a limit is reached.
type Reclaimer interface {
	// Reclaim makes the kernel free memory of p and its descendants by writing memory.reclaim (since Linux 5.19): page cache,
	// slabs, and memory that can be swapped out. freed is the amount freed at least, which may be less than bytes.
	//
	// It works in steps: if ctx ends, it returns the amount freed so far and an error. On v1 and on kernels without the file the
	// error wraps [errors.ErrUnsupported].
	Reclaim(ctx context.Context, p Path, bytes uint64) (freed uint64, err error)
}
