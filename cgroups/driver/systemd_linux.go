// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
)

// systemdCreator is the creator that lets systemd create each cgroup as a slice. Limits are set as properties first, because
// systemd rewrites its own values at times. They are also written to the files: some limits have no property, and systemd may
// reply before it has written them.
//
// systemd owns two files without a slice property, memory.oom.group (reset to 0) and io.weight. Values written there last only
// until another limit of the slice changes.
type systemdCreator struct {
	files   files
	client  *systemd.Client
	dir     string // root of the driver in a hierarchy where systemd creates slices; empty if there is none
	v1      bool
	formula cgroups.WeightFormula
}

// openSystemd connects to systemd, and returns a creator that lets systemd create cgroups and writes limits through c.
func openSystemd(ctx context.Context, c creator, _ names, host Host, opts Options) (creator, error) {
	f, ok := c.(files)
	if !ok {
		return nil, fmt.Errorf("systemd in front of %T", c)
	}
	u := newSystemdCreator(f, systemd.New(systemd.Options{}), host, opts)
	if _, err := u.client.Version(ctx); err != nil {
		return nil, errors.Join(err, u.client.Close())
	}
	return u, nil
}

// newSystemdCreator returns a creator that lets systemd create cgroups. It writes limits to systemd and to the cgroup files
// f.
func newSystemdCreator(f files, client *systemd.Client, host Host, opts Options) *systemdCreator {
	u := &systemdCreator{files: f, client: client, v1: host.Mode != V2, formula: opts.WeightFormula}
	// systemd creates a directory for each slice in these hierarchies
	for _, c := range []string{"pids", "memory", "cpu"} {
		if host.Dirs[c] != "" {
			u.dir = host.Dirs[c]
		}
	}
	return u
}

// createCgroup starts the slice of p with the limits. If the slice is already running, it changes the limits.
func (u *systemdCreator) createCgroup(ctx context.Context, p cgroups.Path, resources cgroups.Resources) error {
	if u.absolutePath(p) == "" { // the root slice belongs to systemd
		return u.files.createCgroup(ctx, p, resources)
	}
	if err := u.startParents(ctx, p); err != nil {
		return err
	}
	resources, err := u.addCurrentQuota(p, resources)
	if err != nil {
		return err
	}
	props, resources, err := systemd.Properties(resources, u.v1, u.formula)
	if err != nil {
		return err
	}
	if err := u.ensureSlice(ctx, p, props); err != nil {
		return err
	}
	return u.files.createCgroup(ctx, p, resources)
}

// startParents starts the missing parent slices of p.
func (u *systemdCreator) startParents(ctx context.Context, p cgroups.Path) error {
	parent := p.Parent()
	if p == "" || parent == "" || u.sliceDirExists(parent) {
		return nil
	}
	// If systemd started them itself, it would remember limits that are set later until the next boot, even after a removal.
	if err := u.startParents(ctx, parent); err != nil {
		return err
	}
	return u.ensureSlice(ctx, parent, nil)
}

// ensureSlice starts the slice of p with the given properties, or updates them.
func (u *systemdCreator) ensureSlice(ctx context.Context, p cgroups.Path, props []systemd.Property) error {
	whole := u.absolutePath(p)
	unit, err := whole.Slice()
	if err != nil {
		return err
	}
	parent, err := whole.Parent().Slice()
	if err != nil {
		return err
	}
	started, err := u.client.Ensure(ctx, systemd.Slice{
		Unit: unit, Parent: parent, Description: "cgroup " + whole.Cgroupfs(), V1: u.v1, Properties: props,
	})
	if err == nil && started && u.dir != "" && !u.sliceDirExists(p) {
		dir, _ := u.files.names.relativeDir(p)
		err = fmt.Errorf("unit %s is started, but its directory is not at %s: the driver and systemd use different cgroup trees",
			unit, filepath.Join(u.dir, dir))
	}
	return err
}

// addCurrentQuota adds the current CPU quota of p to resources that have a period and no quota.
func (u *systemdCreator) addCurrentQuota(p cgroups.Path, resources cgroups.Resources) (cgroups.Resources, error) {
	if resources.CPUPeriod == 0 || resources.CPUQuota != 0 || !u.sliceDirExists(p) {
		return resources, nil
	}
	dir, err := u.files.names.relativeDir(p)
	if err != nil {
		return resources, err
	}
	is, err := u.files.tree.readLimits(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return resources, err
	}
	// systemd would keep the percentage of a CPU, and not the quota in microseconds as the kernel does
	resources.CPUQuota = is.CPUQuota
	return resources, nil
}

// removeCgroup kills the processes of p, then stops its slice, and then removes the directory.
func (u *systemdCreator) removeCgroup(ctx context.Context, p cgroups.Path) error {
	dir, err := u.files.names.relativeDir(p)
	if err != nil {
		return err
	}
	unit, err := u.absolutePath(p).Slice()
	if err != nil {
		return err
	}
	// first, because systemd waits a long time for scopes in a slice
	if err := u.files.tree.killAll(ctx, dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // the unit may exist without its directory
		return err
	}
	if err := u.client.Stop(ctx, unit); err != nil {
		return err
	}
	// last, because a failed removal can be repeated while the directory exists
	return u.files.removeCgroup(ctx, p)
}

func (u *systemdCreator) close() error { return errors.Join(u.client.Close(), u.files.close()) }

// absolutePath returns the path of p relative to the mount point instead of the driver's root. The name of a slice contains
// this whole path.
func (u *systemdCreator) absolutePath(p cgroups.Path) cgroups.Path {
	return u.files.names.root.Join(p.Components()...)
}

// sliceDirExists reports whether the directory of the slice of p exists.
func (u *systemdCreator) sliceDirExists(p cgroups.Path) bool {
	dir, err := u.files.names.relativeDir(p)
	if err != nil || u.dir == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(u.dir, dir))
	return err == nil
}
