// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Options is how a [Driver] works. The zero value is a driver for the whole tree of the host, on files.
type Options struct {
	// Root is the cgroup that paths begin at, in the form of cgroupfs: "/agent". Empty or "/" is the top of the
	// mount. It must exist, on v1 for each controller that the driver shall have; nothing above it is touched.
	Root string
	// Systemd makes each cgroup a slice of systemd. OOMGroup does not last there: systemd writes that file of a slice
	// itself whenever it changes or reloads the slice, and has no property for it.
	Systemd bool
	// WeightFormula is how CPUShares become cpu.weight on v2. The zero value is that of today's runtimes.
	WeightFormula cgroups.WeightFormula
	// Timeout is how long Remove, Kill, Freeze and Thaw wait for the kernel. Zero: 10 s.
	Timeout time.Duration
	// OptionalControllers is more controllers, "cpu" or "pids", that the driver may go without. It always goes without
	// "cpuset", "hugetlb" and "memory" where the host has them not. Nil: none.
	OptionalControllers []string
	// Logger is told once, by Open, what the host lacks. Nil discards.
	Logger *slog.Logger
}

// Driver works on the cgroups of this host. It may be used by several goroutines.
type Driver struct {
	names   names
	host    Host
	creator creator
	tree    tree

	mu     sync.RWMutex // held for reading by what uses the files
	closed bool
}

var (
	_ cgroups.CgroupWriter = (*Driver)(nil)
	_ cgroups.Lister       = (*Driver)(nil)
	_ cgroups.Reader       = (*Driver)(nil)
	_ cgroups.Killer       = (*Driver)(nil)
	_ cgroups.Freezer      = (*Driver)(nil)
	_ cgroups.Sampler      = (*Driver)(nil)
	_ cgroups.Reclaimer    = (*Driver)(nil)
	_ cgroups.Watcher      = (*Driver)(nil)
)

// Open looks at the host and returns a driver for its cgroups. It makes none and changes none. Where the host has no
// "cpu" or "pids" controller, and Options.OptionalControllers does not allow that, or no cgroups at all, it is an error.
func Open(ctx context.Context, o Options) (*Driver, error) {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("open cgroups %s: %w", cmp.Or(o.Root, "/"), err)
	}
	if len(d.host.Missing) > 0 {
		o.Logger.Warn("cgroup limits are skipped that this host cannot enforce", "missing", d.host.Missing,
			"mode", d.host.Mode, "root", d.names.root.Cgroupfs())
	}
	return d, nil
}

func open(ctx context.Context, o Options) (*Driver, error) {
	root, err := cgroups.ParseCgroupfs(cmp.Or(o.Root, "/"))
	if err != nil {
		return nil, err
	}
	n := names{root: root, systemd: o.Systemd}
	dir, err := n.rootDir()
	if err != nil {
		return nil, err
	}
	t, host, err := openTree(dir, o)
	if err != nil {
		return nil, err
	}
	d := &Driver{names: n, host: host, creator: files{names: n, tree: t}, tree: t}
	if !o.Systemd {
		return d, nil
	}
	if d.creator, err = openSystemd(ctx, d.creator, n, host, o); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return d, nil
}

// Close waits for the calls that run and releases what the driver holds. Cgroups stay as they are.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.creator.close()
}

// Host returns what Open found.
func (d *Driver) Host() Host {
	h := d.host
	h.Missing, h.HugepageSizes = slices.Clone(h.Missing), slices.Clone(h.HugepageSizes)
	h.Dirs = maps.Clone(h.Dirs)
	return h
}

// Root returns the cgroup that paths begin at, in the form of cgroupfs: "/" for a driver of the whole tree.
func (d *Driver) Root() string { return d.names.root.Cgroupfs() }

// Name returns the cgroup in the form that a CRI runtime takes as the parent of a sandbox, from the top of the mount.
// With systemd, a component that has "_" in it is an error.
func (d *Driver) Name(p cgroups.Path) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	return d.names.full(p)
}

// Apply makes a cgroup with all of its parents, or limits an existing one, see [cgroups.CgroupWriter]. A new cgroup is
// written to without being read; of an existing one only the files that differ are written.
func (d *Driver) Apply(ctx context.Context, p cgroups.Path, r cgroups.Resources) error {
	return d.do(ctx, "apply", p, func(string) error {
		if err := r.Validate(); err != nil {
			return err
		}
		return d.creator.create(ctx, p, r)
	})
}

// Remove kills what runs in a cgroup and below, and removes it. Where processes do not die in Options.Timeout the
// error names them and what they wait for, and the cgroup stays, for another Remove to finish.
func (d *Driver) Remove(ctx context.Context, p cgroups.Path) error {
	return d.do(ctx, "remove", p, func(string) error {
		if p == "" {
			return errRoot
		}
		return d.creator.remove(ctx, p)
	})
}

// Kill kills what runs in a cgroup and below. It is over when nothing runs there, at most Options.Timeout later.
func (d *Driver) Kill(ctx context.Context, p cgroups.Path) error {
	return d.do(ctx, "kill", p, func(dir string) error {
		if p == "" {
			return errRoot
		}
		return d.tree.kill(ctx, dir)
	})
}

// Freeze stops what runs in a cgroup and below. Where the kernel is not done in Options.Timeout, all goes on and it is
// an error.
func (d *Driver) Freeze(ctx context.Context, p cgroups.Path) error { return d.freeze(ctx, "freeze", p) }

// Thaw lets what runs in a cgroup and below go on, except where a cgroup below or above was frozen on its own.
func (d *Driver) Thaw(ctx context.Context, p cgroups.Path) error { return d.freeze(ctx, "thaw", p) }

func (d *Driver) freeze(ctx context.Context, op string, p cgroups.Path) error {
	return d.do(ctx, op, p, func(dir string) error {
		if p == "" {
			return errRoot
		}
		return d.tree.freeze(ctx, dir, op == "freeze")
	})
}

// Children returns the names of the cgroups directly below p. With systemd these are the slices; scopes and services
// have no path.
func (d *Driver) Children(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = d.do(ctx, "list", p, func(dir string) error {
		dirs, err := d.tree.children(dir)
		for _, dir := range dirs {
			if name, ok := d.names.component(dir); ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return err
	})
	return names, err
}

// Procs returns the processes of p and of everything below it, sorted. Those of another PID namespace are left out:
// they have no number here.
func (d *Driver) Procs(ctx context.Context, p cgroups.Path) (pids []int, err error) {
	err = d.do(ctx, "list", p, func(dir string) error {
		pids, err = d.tree.procs(dir)
		return err
	})
	return pids, err
}

// Limits returns what is in force, see [cgroups.Reader].
func (d *Driver) Limits(ctx context.Context, p cgroups.Path) (r cgroups.Resources, err error) {
	err = d.do(ctx, "read", p, func(dir string) error {
		r, err = d.tree.limits(dir)
		return err
	})
	return r, err
}

// Stats returns what is used, see [cgroups.Reader].
func (d *Driver) Stats(ctx context.Context, p cgroups.Path) (s cgroups.Stats, err error) {
	err = d.do(ctx, "read", p, func(dir string) error {
		s, err = d.tree.sample(dir, cgroups.PartAll&^(cgroups.PartMemoryLimit|cgroups.PartPidsLimit|cgroups.PartProcs))
		return err
	})
	return s, err
}

// errRoot refuses what would end the caller, or all that it looks after.
var errRoot = errors.New("the root of the tree is not the driver's to stop or remove")

// do runs a step on a cgroup while the driver is open, and says in its error what was done to which cgroup.
func (d *Driver) do(ctx context.Context, op string, p cgroups.Path, step func(dir string) error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	err := func() error {
		if d.closed {
			return fs.ErrClosed
		}
		if err := p.Validate(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		dir, err := d.names.dir(p)
		if err != nil {
			return err
		}
		return step(dir)
	}()
	return failed(op, p, err)
}

// failed says in an error what was done to which cgroup.
func failed(op string, p cgroups.Path, err error) error {
	if err == nil {
		return nil
	}
	at := &cgroups.Error{Op: op, Path: p, Err: err}
	if f, ok := errors.AsType[*fileError](err); ok {
		at.File = f.file
	}
	return at
}

// fileError is a cause that one file is to blame for, which it leaves to [cgroups.Error] to name.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }
