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

// units is the creator that has systemd make each cgroup, as a slice. Limits go to systemd first, which writes its own
// idea of them whenever it comes by, and then to the files: some have no property, and systemd answers before it has
// written the others.
//
// Two files are systemd's own although a slice has no property for them, so that what is written to them lasts only
// until another limit changes: memory.oom.group, which it sets to 0, and io.weight, where Unified has it.
type units struct {
	files
	client  *systemd.Client
	dir     string // the root of the driver in a hierarchy in which systemd makes each slice; empty if there is none
	v1      bool
	formula cgroups.WeightFormula
}

// openSystemd connects to systemd.
func openSystemd(ctx context.Context, c creator, _ names, h Host, o Options) (creator, error) {
	f, ok := c.(files)
	if !ok {
		return nil, fmt.Errorf("systemd in front of %T", c)
	}
	u := newUnits(f, systemd.New(systemd.Options{}), h, o)
	if _, err := u.client.Version(ctx); err != nil {
		return nil, errors.Join(err, u.client.Close())
	}
	return u, nil
}

// newUnits puts systemd in front of files. Each slice is made with accounting of CPU, memory and tasks.
func newUnits(f files, client *systemd.Client, h Host, o Options) *units {
	u := &units{files: f, client: client, v1: h.Mode != V2, formula: o.WeightFormula}
	for _, c := range []string{"pids", "memory", "cpu"} {
		if h.Dirs[c] != "" {
			u.dir = h.Dirs[c]
		}
	}
	return u
}

// create has systemd start the slice, or limit it where it runs.
func (u *units) create(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	if u.whole(p) == "" { // the root slice is systemd's own
		return u.files.create(ctx, p, r)
	}
	if err := u.parents(ctx, p); err != nil {
		return err
	}
	r, err := u.withQuota(p, r)
	if err != nil {
		return err
	}
	props, r, err := systemd.Properties(r, u.v1, u.formula)
	if err != nil {
		return err
	}
	if err := u.ensure(ctx, p, props); err != nil {
		return err
	}
	return u.files.create(ctx, p, r)
}

// parents starts what is missing above a cgroup. Systemd would, too, but it keeps the limits that are set later of what
// it starts by itself beyond its removal, until the next boot.
func (u *units) parents(ctx context.Context, p cgroups.Path) error {
	parent := p.Parent()
	if p == "" || parent == "" || u.exists(parent) {
		return nil
	}
	if err := u.parents(ctx, parent); err != nil {
		return err
	}
	return u.ensure(ctx, parent, nil)
}

// ensure starts a slice. One that starts elsewhere than in our files means that we see other cgroups than systemd.
func (u *units) ensure(ctx context.Context, p cgroups.Path, props []systemd.Property) error {
	whole := u.whole(p)
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
	if err == nil && started && u.dir != "" && !u.exists(p) {
		dir, _ := u.names.dir(p)
		err = fmt.Errorf("unit %s is started, but its directory is not at %s: these are not the cgroups of systemd",
			unit, filepath.Join(u.dir, dir))
	}
	return err
}

// withQuota adds the quota that is in force where only the period is to change: systemd would keep the share of a CPU,
// and the kernel the quota.
func (u *units) withQuota(p cgroups.Path, r cgroups.Resources) (cgroups.Resources, error) {
	if r.CPUPeriod == 0 || r.CPUQuota != 0 || !u.exists(p) {
		return r, nil
	}
	dir, err := u.names.dir(p)
	if err != nil {
		return r, err
	}
	is, err := u.tree.limits(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	r.CPUQuota = is.CPUQuota
	return r, nil
}

// remove kills first, since systemd gives the scopes in a slice a long time to end, and removes the directory last: as
// long as systemd has the unit it is the sign that there is something left to remove.
func (u *units) remove(ctx context.Context, p cgroups.Path) error {
	dir, err := u.names.dir(p)
	if err != nil {
		return err
	}
	unit, err := u.whole(p).Slice()
	if err != nil {
		return err
	}
	if err := u.tree.kill(ctx, dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // the unit may be there all the same
		return err
	}
	if err := u.client.Stop(ctx, unit); err != nil {
		return err
	}
	return u.files.remove(ctx, p)
}

func (u *units) close() error { return errors.Join(u.client.Close(), u.files.close()) }

// whole is a path from the top of the mount, where the names of units begin.
func (u *units) whole(p cgroups.Path) cgroups.Path { return u.root.Join(p.Components()...) }

// exists reports whether systemd has made a cgroup.
func (u *units) exists(p cgroups.Path) bool {
	dir, err := u.names.dir(p)
	if err != nil || u.dir == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(u.dir, dir))
	return err == nil
}
