// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/seed81659283/nodeagent/cgroups"
)

// creator makes, limits and removes cgroups: in the files of the kernel, or as units of systemd with the files behind
// them for what systemd has no property for. The systemd side is
//
//	openSystemd(ctx context.Context, files creator, n names, h Host, o Options) (creator, error)
//
// which Open calls when Options.Systemd is set. Paths have been validated, and errors are wrapped by the Driver.
type creator interface {
	create(ctx context.Context, p cgroups.Path, r cgroups.Resources) error
	remove(ctx context.Context, p cgroups.Path) error
	close() error
}

// tree is the files of the kernel, which all but creation goes to directly. A dir is relative to the root of the
// driver, see [names].
type tree interface {
	apply(ctx context.Context, dir string, r cgroups.Resources) error
	remove(ctx context.Context, dir string) error
	kill(ctx context.Context, dir string) error
	freeze(ctx context.Context, dir string, frozen bool) error
	children(dir string) ([]string, error)
	procs(dir string) ([]int, error)
	dirs(dir string) []string // absolute, of all hierarchies
	limits(dir string) (cgroups.Resources, error)
	sample(dir string, parts cgroups.Parts) (cgroups.Stats, error)
	reclaim(ctx context.Context, dir string, bytes uint64) (freed uint64, err error)
	// watch opens what there is to wait for, and returns what waits, once, and calls its func with what fires.
	watch(dir string, triggers []cgroups.Trigger) (wait func(context.Context, func(cgroups.Trigger)) error, err error)
	close() error
}

// files is the creator that needs nobody: directories and files of the kernel.
type files struct {
	names
	tree tree
}

func (f files) create(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	dir, err := f.dir(p)
	if err != nil {
		return err
	}
	return f.tree.apply(ctx, dir, r)
}

func (f files) remove(ctx context.Context, p cgroups.Path) error {
	dir, err := f.dir(p)
	if err != nil {
		return err
	}
	return f.tree.remove(ctx, dir)
}

func (f files) close() error { return f.tree.close() }
