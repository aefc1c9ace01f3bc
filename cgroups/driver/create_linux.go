// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxAttempts is how often a cgroup is created while another program removes it.
const maxAttempts = 5

// retryCreate calls create up to five times, because another program may remove or recreate the cgroup or its parents
// meanwhile.
func retryCreate(ctx context.Context, create func() error) error {
	for n := 1; ; n++ {
		err := create()
		// in a cgroup that was recreated, files and CPUs may be missing for a moment, and cpu.shares may differ
		if err == nil || !isAbsent(err) && !errors.Is(err, errNoCPUs) && !strings.Contains(err.Error(), "allowed cpu-shares is") {
			return err
		}
		if n == maxAttempts {
			return fmt.Errorf("gave up after %d attempts: %w", maxAttempts, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// createDir creates the directory of a cgroup and its missing parents. fresh is true if the directory did not exist before.
func (h *hierarchy) createDir(dir string) (fresh bool, err error) {
	if dir == "" {
		return false, nil
	}
	err = h.mkdir(dir)
	if above := path.Dir(dir); errors.Is(err, unix.ENOENT) && above != "." {
		if _, err := h.createDir(above); err != nil {
			return false, err
		}
		err = h.mkdir(dir)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EROFS) && h.cgroupExists(dir):
		return false, nil
	}
	return false, fmt.Errorf("make directory %s: %w", h.absolutePath(dir), err)
}
