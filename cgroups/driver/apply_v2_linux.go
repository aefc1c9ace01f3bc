// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// v2 is the single tree of cgroup v2.
type v2 struct {
	*shared
	h           *hierarchy
	controllers string // cgroup.controllers of the root
	formula     cgroups.WeightFormula
}

func (t *v2) apply(ctx context.Context, dir string, r cgroups.Resources) error {
	var space [16]setting
	want, err := settings(space[:0], r, t.formula)
	if err != nil {
		return err
	}
	return makeAgain(ctx, func() error { return t.applyOnce(dir, want) })
}

func (t *v2) applyOnce(dir string, want []setting) error {
	fresh, err := t.h.make(dir)
	if err != nil {
		return err
	}
	if fresh {
		// What has no limits is counted all the same. Where that cannot be, it is for a limit to fail.
		var space [128]byte
		if text, err := t.h.read(space[:0], dir, "cgroup.controllers"); err == nil && string(text) != t.controllers {
			_ = t.delegate(dir, "")
		}
	}
	for _, s := range want {
		if slices.Contains(t.host.Missing, s.controller) || s.file == "memory.swap.max" && !t.host.HasController(swap) {
			continue
		}
		err := t.set(dir, s, fresh)
		if errors.Is(err, unix.ENOENT) { // no controller, or no cgroup
			err = t.setDelegated(dir, s, fresh)
		}
		if err != nil {
			return &fileError{s.file, fmt.Errorf("write %q: %w", s.value, err)}
		}
	}
	return nil
}

// set writes one file, unless it says what it shall already. That of a new cgroup holds what the kernel begins with,
// and is not read.
func (t *v2) set(dir string, s setting, fresh bool) error {
	if !fresh {
		var space [128]byte
		// What cannot be read, such as a file to write commands to, cannot be compared.
		if current, err := t.h.read(space[:0], dir, s.file); err == nil {
			if s = s.keepQuota(string(current)); s.holds(string(current)) {
				return nil
			}
		}
	}
	var flags uint64
	if s.nonblock {
		flags = unix.O_NONBLOCK
	}
	for line := range strings.Lines(s.value) {
		if err := t.h.write(dir, s.file, line, flags); err != nil {
			return err
		}
	}
	return nil
}

// setDelegated enables the controllers from the root down to a cgroup that lacks a file, and writes it then.
func (t *v2) setDelegated(dir string, s setting, fresh bool) error {
	denied := t.delegate(dir, s.controller)
	err := t.set(dir, s, fresh)
	switch {
	case !errors.Is(err, unix.ENOENT), !t.h.exists(dir):
		return err
	case denied != nil:
		return fmt.Errorf("controller %s is not there: %w", s.controller, denied)
	case s.optional, s.file == "memory.swap.max" && (s.value == "0" || s.value == "max"):
		return nil
	}
	var space [32]byte
	kind, _ := t.h.read(space[:0], dir, "cgroup.type")
	return fmt.Errorf("neither the controller nor the kernel has it here, in a cgroup of type %q: %w",
		strings.TrimSpace(string(kind)), err)
}

// delegate enables all controllers in each cgroup above one. It returns why the needed one could not be.
func (t *v2) delegate(dir, needed string) error {
	all := "+" + strings.Join(t.h.controllers, " +")
	for i := -1; i < len(dir); i++ {
		if i >= 0 && dir[i] != '/' {
			continue
		}
		above := dir[:max(i, 0)]
		err := t.h.write(above, subtreeControl, all, 0)
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.EBUSY):
			err = fmt.Errorf("it has processes of its own: %w", err)
		case !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EROFS):
			// One that cannot be enabled holds up the others. With processes in the way that must not be tried: the
			// controllers that can do with threads would make it a cgroup of threads.
			if err = t.enableEach(above, needed); err == nil {
				continue
			}
		}
		return &fs.PathError{Op: "enable it in", Path: t.h.path(join(above, subtreeControl)), Err: err}
	}
	return nil
}

// enableEach enables one controller after the other, as many as can be, and returns why the needed one cannot.
func (t *v2) enableEach(above, needed string) (err error) {
	for _, c := range t.h.controllers {
		if failed := t.h.write(above, subtreeControl, "+"+c, 0); c == needed {
			err = failed
		}
	}
	return err
}

const subtreeControl = "cgroup.subtree_control"
