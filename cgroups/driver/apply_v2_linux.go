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

// treeV2 implements tree for cgroup v2, which has one hierarchy.
type treeV2 struct {
	hierarchies *hierarchies
	h           *hierarchy
	controllers string // content of cgroup.controllers at the root
	formula     cgroups.WeightFormula
}

func (t *treeV2) applyLimits(ctx context.Context, dir string, r cgroups.Resources) error {
	var space [16]setting
	desired, err := buildSettings(space[:0], r, t.formula)
	if err != nil {
		return err
	}
	return retryCreate(ctx, func() error { return t.applyOnce(dir, desired) })
}

func (t *treeV2) applyOnce(dir string, desired []setting) error {
	fresh, err := t.h.createDir(dir)
	if err != nil {
		return err
	}
	if fresh {
		// Enable all controllers also in a cgroup without limits, so that its usage is counted. If that fails, writing a limit
		// reports the error.
		var space [128]byte
		if text, err := t.h.readFile(space[:0], dir, "cgroup.controllers"); err == nil && string(text) != t.controllers {
			_ = t.enableControllers(dir, "")
		}
	}
	for _, s := range desired {
		if slices.Contains(t.hierarchies.host.Missing, s.controller) || s.file == "memory.swap.max" && !t.hierarchies.host.HasController(swap) {
			continue
		}
		err := t.applySetting(dir, s, fresh)
		if errors.Is(err, unix.ENOENT) { // the controller is not enabled, or the cgroup was removed
			err = t.applyDelegated(dir, s, fresh)
		}
		if err != nil {
			return &fileError{s.file, fmt.Errorf("write %q: %w", s.value, err)}
		}
	}
	return nil
}

// applySetting writes a setting to its file, unless the file already has this value. A new cgroup's file is not read.
func (t *treeV2) applySetting(dir string, s setting, isNew bool) error {
	if !isNew {
		var space [128]byte
		// A file that cannot be read, for example a command file, cannot be compared.
		if current, err := t.h.readFile(space[:0], dir, s.file); err == nil {
			if s = s.keepQuota(string(current)); s.isSatisfiedBy(string(current)) {
				return nil
			}
		}
	}
	var flags uint64
	if s.nonblock {
		flags = unix.O_NONBLOCK
	}
	for line := range strings.Lines(s.value) {
		if err := t.h.writeFile(dir, s.file, line, flags); err != nil {
			return err
		}
	}
	return nil
}

// applyDelegated enables the controller of a setting in all ancestors of the cgroup, and then writes the setting.
func (t *treeV2) applyDelegated(dir string, s setting, isNew bool) error {
	denied := t.enableControllers(dir, s.controller)
	err := t.applySetting(dir, s, isNew)
	switch {
	case !errors.Is(err, unix.ENOENT), !t.h.cgroupExists(dir):
		return err
	case denied != nil:
		return fmt.Errorf("controller %s is not enabled: %w", s.controller, denied)
	case s.optional, s.file == "memory.swap.max" && (s.value == "0" || s.value == "max"):
		return nil
	}
	var space [32]byte
	kind, _ := t.h.readFile(space[:0], dir, "cgroup.type")
	return fmt.Errorf("the file does not exist in a cgroup of type %q: %w",
		strings.TrimSpace(string(kind)), err)
}

// enableControllers enables all controllers in each ancestor of a cgroup. A controller that the kernel rejects is an error
// only if it is needed. An ancestor with processes is always an error.
func (t *treeV2) enableControllers(dir, needed string) error {
	all := "+" + strings.Join(t.h.controllers, " +")
	for i := -1; i < len(dir); i++ {
		if i >= 0 && dir[i] != '/' {
			continue
		}
		above := dir[:max(i, 0)]
		err := t.h.writeFile(above, subtreeControl, all, 0)
		switch {
		case err == nil:
			continue
		case errors.Is(err, unix.EBUSY):
			err = fmt.Errorf("the cgroup has processes: %w", err)
		case !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EROFS):
			// One invalid controller makes the whole write fail, so enable each alone. Not after EBUSY: thread-aware controllers
			// would then make this cgroup threaded.
			if err = t.enableEach(above, needed); err == nil {
				continue
			}
		}
		return &fs.PathError{Op: "enable controllers in", Path: t.h.absolutePath(joinDir(above, subtreeControl)), Err: err}
	}
	return nil
}

// enableEach enables the controllers for the children of a cgroup one by one. Only a failure of the needed controller is
// an error.
func (t *treeV2) enableEach(parent, needed string) (err error) {
	for _, c := range t.h.controllers {
		if failed := t.h.writeFile(parent, subtreeControl, "+"+c, 0); c == needed {
			err = failed
		}
	}
	return err
}

const subtreeControl = "cgroup.subtree_control"
