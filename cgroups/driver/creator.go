// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"

	"github.com/seed81659283/nodeagent/cgroups"
)

// creator creates, limits and removes cgroups: directly in the file system (files), or as systemd slices (systemdCreator).
// Callers pass valid paths. The Driver wraps the errors.
type creator interface {
	createCgroup(ctx context.Context, p cgroups.Path, r cgroups.Resources) error
	removeCgroup(ctx context.Context, p cgroups.Path) error
	close() error
}

// tree is the interface to the cgroup file system: treeV1 or treeV2. A dir is relative to the root of the driver, see [names].
type tree interface {
	applyLimits(ctx context.Context, dir string, r cgroups.Resources) error
	removeCgroup(ctx context.Context, dir string) error
	killAll(ctx context.Context, dir string) error
	setFrozen(ctx context.Context, dir string, frozen bool) error
	listChildren(dir string) ([]string, error)
	listProcs(dir string) ([]int, error)
	absoluteDirs(dir string) []string // absolute, one per hierarchy
	readLimits(dir string) (cgroups.Resources, error)
	readStats(dir string, parts cgroups.Parts) (cgroups.Stats, error)
	reclaimMemory(ctx context.Context, dir string, bytes uint64) (freed uint64, err error)
	// openWatch opens the files of the triggers. The caller calls wait once: it calls its func for each trigger that fires, and
	// closes the files.
	openWatch(dir string, triggers []cgroups.Trigger) (wait func(context.Context, func(cgroups.Trigger)) error, err error)
	close() error
}

// files is the creator that uses the cgroup file system only, without systemd.
type files struct {
	names names
	tree  tree
}

func (f files) createCgroup(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	dir, err := f.names.relativeDir(p)
	if err != nil {
		return err
	}
	return f.tree.applyLimits(ctx, dir, r)
}

func (f files) removeCgroup(ctx context.Context, p cgroups.Path) error {
	dir, err := f.names.relativeDir(p)
	if err != nil {
		return err
	}
	return f.tree.removeCgroup(ctx, dir)
}

func (f files) close() error { return f.tree.close() }
