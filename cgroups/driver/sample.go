// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Sample returns the selected parts of what a cgroup uses, see [cgroups.Sampler]: it opens no file but theirs. On v1 a
// cgroup is removed from one hierarchy after the other, and has zeros for those that it is not in any more.
func (d *Driver) Sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts) (s cgroups.Stats, err error) {
	err = d.do(ctx, "read", p, func(dir string) error {
		if leaf != "" {
			if leaf == "." || leaf == ".." || strings.ContainsAny(leaf, "/\x00\n") {
				return fmt.Errorf("leaf %q is no name of a directory", leaf)
			}
			dir = join(dir, leaf)
		}
		if s, err = d.tree.sample(dir, parts); err != nil && leaf != "" {
			err = fmt.Errorf("leaf %q: %w", leaf, err)
		}
		return err
	})
	return s, err
}

// ChildDirs returns the names of the directories directly below p, see [cgroups.Sampler].
func (d *Driver) ChildDirs(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = d.do(ctx, "list", p, func(dir string) error {
		names, err = d.tree.children(dir)
		return err
	})
	return names, err
}

// Reclaim has the kernel take back memory, in steps of up to 16 MiB, see [cgroups.Reclaimer].
func (d *Driver) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (freed uint64, err error) {
	err = d.do(ctx, "reclaim", p, func(dir string) error {
		freed, err = d.tree.reclaim(ctx, dir, bytes)
		return err
	})
	return freed, err
}

// Watch calls fn whenever a trigger fires, see [cgroups.Watcher]. It takes a thread of the operating system, which
// waits in poll(2), and goes on when the driver is closed.
func (d *Driver) Watch(ctx context.Context, p cgroups.Path, triggers []cgroups.Trigger, fn func(cgroups.Trigger)) error {
	if len(triggers) == 0 {
		return &cgroups.Error{Op: "watch", Path: p, Err: errors.New("no trigger to wait for")}
	}
	var wait func(context.Context, func(cgroups.Trigger)) error
	err := d.do(ctx, "watch", p, func(dir string) (err error) {
		for _, t := range triggers {
			if err := t.Validate(); err != nil {
				return err
			}
		}
		wait, err = d.tree.watch(dir, slices.Clone(triggers))
		return err
	})
	if err != nil {
		return err
	}
	return failed("watch", p, wait(ctx, fn))
}

// join names what is in a directory, which is empty for the root.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
