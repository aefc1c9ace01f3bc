// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// A write to memory.reclaim cannot be cancelled, so each requests one step. If the kernel frees less, it fails without an amount;
// smaller steps then determine the amount.
const (
	reclaimStep  = 16 << 20
	reclaimLeast = 64 << 10
)

func (t *treeV2) reclaimMemory(ctx context.Context, dir string, bytes uint64) (freed uint64, err error) {
	for step := uint64(reclaimStep); freed < bytes; {
		if err := ctx.Err(); err != nil {
			return freed, err
		}
		n := min(step, bytes-freed)
		err := t.h.writeFile(dir, "memory.reclaim", strconv.FormatUint(n, 10), 0)
		switch {
		case err == nil:
			freed += n
		case errors.Is(err, unix.EAGAIN) && n <= reclaimLeast:
			return freed, nil
		case errors.Is(err, unix.EAGAIN):
			step = max(n/4, reclaimLeast)
		case isAbsent(err) && !t.h.cgroupExists(dir):
			return freed, fs.ErrNotExist
		case isAbsent(err):
			return freed, &fileError{"memory.reclaim", fmt.Errorf("%w: the kernel is older than Linux 5.19, or has no memory controller here", errors.ErrUnsupported)}
		default:
			return freed, &fileError{"memory.reclaim", err}
		}
	}
	return freed, nil
}

func (t *treeV1) reclaimMemory(_ context.Context, dir string, _ uint64) (uint64, error) {
	if err := t.checkExists(dir); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("memory cannot be reclaimed on cgroup v1: %w", errors.ErrUnsupported)
}
