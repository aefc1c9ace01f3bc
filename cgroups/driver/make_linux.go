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

// attempts is how often a cgroup is made that somebody else removes at the same time.
const attempts = 5

// makeAgain makes a cgroup again where somebody removed it, or one above it, meanwhile. What they make of it in turn
// may lack controllers and CPUs for a moment, so that only time reports whether a file is missing for good. Other shares than
// were written, which are valid, are those of a cgroup that was made anew.
func makeAgain(ctx context.Context, once func() error) error {
	for n := 1; ; n++ {
		err := once()
		if err == nil || !absent(err) && !errors.Is(err, errNoCPUs) && !strings.Contains(err.Error(), "allowed cpu-shares is") {
			return err
		}
		if n == attempts {
			return fmt.Errorf("gave up after %d attempts: %w", attempts, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// make makes a cgroup, with its parents where they are missing, and reports whether it is new.
func (h *hierarchy) make(dir string) (fresh bool, err error) {
	if dir == "" {
		return false, nil
	}
	err = h.mkdir(dir)
	if above := path.Dir(dir); errors.Is(err, unix.ENOENT) && above != "." {
		if _, err := h.make(above); err != nil {
			return false, err
		}
		err = h.mkdir(dir)
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EROFS) && h.exists(dir):
		return false, nil
	}
	return false, fmt.Errorf("make directory %s: %w", h.path(dir), err)
}
