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

// Sample returns the selected parts of the usage of cgroup p, or of its child if that is not empty. It implements
// [cgroups.Sampler]. While a v1 cgroup is being removed, the usage in some hierarchies is zero.
func (d *Driver) Sample(ctx context.Context, p cgroups.Path, child string, parts cgroups.Parts) (stats cgroups.Stats, err error) {
	err = d.runOnCgroup(ctx, "read", p, func(dir string) error {
		if child != "" {
			if child == "." || child == ".." || strings.ContainsAny(child, "/\x00\n") {
				return fmt.Errorf("child %q is not a directory name", child)
			}
			dir = joinDir(dir, child)
		}
		if stats, err = d.tree.readStats(dir, parts); err != nil && child != "" {
			err = fmt.Errorf("child %q: %w", child, err)
		}
		return err
	})
	return stats, err
}

// ChildDirs returns the sorted names of the directories directly below p. It implements [cgroups.Sampler].
func (d *Driver) ChildDirs(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = d.runOnCgroup(ctx, "list", p, func(dir string) error {
		names, err = d.tree.listChildren(dir)
		return err
	})
	return names, err
}

// Reclaim makes the kernel free up to the given bytes of memory that p uses, at most 16 MiB at a time. It implements
// [cgroups.Reclaimer].
func (d *Driver) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (freed uint64, err error) {
	err = d.runOnCgroup(ctx, "reclaim", p, func(dir string) error {
		freed, err = d.tree.reclaimMemory(ctx, dir, bytes)
		return err
	})
	return freed, err
}

// Watch calls fn when a trigger fires, and returns when ctx ends. It implements [cgroups.Watcher]. It blocks an operating
// system thread in poll(2). [Driver.Close] does not end it.
func (d *Driver) Watch(ctx context.Context, p cgroups.Path, triggers []cgroups.Trigger, fn func(cgroups.Trigger)) error {
	if len(triggers) == 0 {
		return &cgroups.Error{Op: "watch", Path: p, Err: errors.New("no trigger to wait for")}
	}
	var wait func(context.Context, func(cgroups.Trigger)) error
	err := d.runOnCgroup(ctx, "watch", p, func(dir string) (err error) {
		for _, t := range triggers {
			if err := t.Validate(); err != nil {
				return err
			}
		}
		wait, err = d.tree.openWatch(dir, slices.Clone(triggers))
		return err
	})
	if err != nil {
		return err
	}
	return wrapError("watch", p, wait(ctx, fn))
}

// joinDir returns dir/name. If dir is empty, which is the root, it returns name.
func joinDir(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
