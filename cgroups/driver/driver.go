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

// Options configures a [Driver]. The zero value is a driver for the whole cgroup tree of the host without systemd.
type Options struct {
	// Root is the cgroup that paths are relative to, in cgroupfs format: for example "/agent". Empty or "/" is the mount point.
	// It must exist, on v1 in each hierarchy whose controller the driver needs. The driver changes nothing above it.
	Root string
	// Systemd creates each cgroup as a systemd slice. OOMGroup does not last there: systemd resets memory.oom.group when it
	// changes or reloads the slice, and has no property for it.
	Systemd bool
	// WeightFormula converts CPUShares to cpu.weight on v2. Zero is the formula of current runtimes.
	WeightFormula cgroups.WeightFormula
	// Timeout limits how long Remove, Kill, Freeze and Thaw wait for the kernel. Zero: 10 s.
	Timeout time.Duration
	// OptionalControllers lists the controllers "cpu" and "pids" if they may be missing on the host. "cpuset", "hugetlb" and
	// "memory" may always be missing. Nil: none.
	OptionalControllers []string
	// Logger receives one warning from Open about the controllers that the host does not have. Nil discards it.
	Logger *slog.Logger
}

// Driver manages the cgroups of this host. Its methods may be called by several goroutines.
type Driver struct {
	names   names
	host    Host
	creator creator
	tree    tree

	mu     sync.RWMutex // read-locked by each call that uses files; Close locks it
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

// Open returns a driver for the cgroups of this host, which it does not change. It returns an error if the host has no
// cgroups, or lacks controller cpu or pids and Options.OptionalControllers does not name it.
func Open(ctx context.Context, opts Options) (*Driver, error) {
	opts.Timeout = cmp.Or(opts.Timeout, 10*time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := openDriver(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("open cgroups %s: %w", cmp.Or(opts.Root, "/"), err)
	}
	if len(d.host.Missing) > 0 {
		opts.Logger.Warn("cgroup limits are skipped that this host cannot enforce", "missing", d.host.Missing,
			"mode", d.host.Mode, "root", d.names.root.Cgroupfs())
	}
	return d, nil
}

func openDriver(ctx context.Context, o Options) (*Driver, error) {
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

// Close releases the file descriptors of the driver. It waits until running calls have returned. It removes no cgroups.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.creator.close()
}

// Host returns a copy of what Open has found on the host.
func (d *Driver) Host() Host {
	h := d.host
	h.Missing, h.HugepageSizes = slices.Clone(h.Missing), slices.Clone(h.HugepageSizes)
	h.Dirs = maps.Clone(h.Dirs)
	return h
}

// Root returns the root of the driver in cgroupfs format. All paths are relative to this cgroup. It is "/" if the driver
// manages the whole tree.
func (d *Driver) Root() string { return d.names.root.Cgroupfs() }

// Name returns the name of the cgroup p in the format of cgroup_parent of a CRI sandbox. The name is relative to the mount
// point. With systemd, it returns an error if a component contains "_".
func (d *Driver) Name(p cgroups.Path) (string, error) {
	if err := p.Validate(); err != nil {
		return "", err
	}
	return d.names.cgroupName(p)
}

// Apply creates the cgroup p and its missing parents, or changes the limits of an existing cgroup. It implements
// [cgroups.CgroupWriter]. In an existing cgroup it writes only the files that differ.
func (d *Driver) Apply(ctx context.Context, p cgroups.Path, resources cgroups.Resources) error {
	return d.runOnCgroup(ctx, "apply", p, func(string) error {
		if err := resources.Validate(); err != nil {
			return err
		}
		return d.creator.createCgroup(ctx, p, resources)
	})
}

// Remove kills the processes in p and its descendants, and removes these cgroups. If processes still run after
// Options.Timeout, the error names them with their state. The cgroup then remains, and Remove can be called again.
func (d *Driver) Remove(ctx context.Context, p cgroups.Path) error {
	return d.runOnCgroup(ctx, "remove", p, func(string) error {
		if p == "" {
			return errRoot
		}
		return d.creator.removeCgroup(ctx, p)
	})
}

// Kill kills the processes in p and its descendants. It returns after all have exited, or with an error after
// Options.Timeout.
func (d *Driver) Kill(ctx context.Context, p cgroups.Path) error {
	return d.runOnCgroup(ctx, "kill", p, func(dir string) error {
		if p == "" {
			return errRoot
		}
		return d.tree.killAll(ctx, dir)
	})
}

// Freeze stops the processes in p and its descendants. If the kernel does not complete this within Options.Timeout, Freeze
// resumes them and returns an error.
func (d *Driver) Freeze(ctx context.Context, p cgroups.Path) error {
	return d.setFrozen(ctx, "freeze", p)
}

// Thaw resumes the processes in p and its descendants. A cgroup stays frozen if it was frozen itself, or if one of its
// ancestors is frozen.
func (d *Driver) Thaw(ctx context.Context, p cgroups.Path) error { return d.setFrozen(ctx, "thaw", p) }

func (d *Driver) setFrozen(ctx context.Context, op string, p cgroups.Path) error {
	return d.runOnCgroup(ctx, op, p, func(dir string) error {
		if p == "" {
			return errRoot
		}
		return d.tree.setFrozen(ctx, dir, op == "freeze")
	})
}

// Children returns the sorted names of the cgroups directly below p. With systemd it returns only slices, because a
// [cgroups.Path] cannot name scopes and services.
func (d *Driver) Children(ctx context.Context, p cgroups.Path) (names []string, err error) {
	err = d.runOnCgroup(ctx, "list", p, func(dir string) error {
		dirs, err := d.tree.listChildren(dir)
		for _, dir := range dirs {
			if name, ok := d.names.pathComponent(dir); ok {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return err
	})
	return names, err
}

// Procs returns the sorted PIDs of the processes in p and its descendants. Processes outside the caller's PID namespace are
// missing.
func (d *Driver) Procs(ctx context.Context, p cgroups.Path) (pids []int, err error) {
	err = d.runOnCgroup(ctx, "list", p, func(dir string) error {
		pids, err = d.tree.listProcs(dir)
		return err
	})
	return pids, err
}

// Limits returns the limits of p that the kernel enforces. It implements [cgroups.Reader].
func (d *Driver) Limits(ctx context.Context, p cgroups.Path) (resources cgroups.Resources, err error) {
	err = d.runOnCgroup(ctx, "read", p, func(dir string) error {
		resources, err = d.tree.readLimits(dir)
		return err
	})
	return resources, err
}

// Stats returns the usage of p, see [cgroups.Reader].
func (d *Driver) Stats(ctx context.Context, p cgroups.Path) (stats cgroups.Stats, err error) {
	err = d.runOnCgroup(ctx, "read", p, func(dir string) error {
		stats, err = d.tree.readStats(dir, cgroups.PartAll&^(cgroups.PartMemoryLimit|cgroups.PartPidsLimit|cgroups.PartProcs))
		return err
	})
	return stats, err
}

// errRoot rejects an operation that would stop the caller itself or all cgroups of the driver.
var errRoot = errors.New("the root cgroup of the driver cannot be stopped or removed")

// runOnCgroup checks the path and calls step with its directory. It wraps errors in a [cgroups.Error].
func (d *Driver) runOnCgroup(ctx context.Context, op string, p cgroups.Path, step func(dir string) error) error {
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
		dir, err := d.names.relativeDir(p)
		if err != nil {
			return err
		}
		return step(dir)
	}()
	return wrapError(op, p, err)
}

// wrapError wraps err in a [cgroups.Error] with the operation, path and file. A nil err stays nil.
func wrapError(op string, p cgroups.Path, err error) error {
	if err == nil {
		return nil
	}
	at := &cgroups.Error{Op: op, Path: p, Err: err}
	if f, ok := errors.AsType[*fileError](err); ok {
		at.File = f.file
	}
	return at
}

// fileError is an error about one file of a cgroup. Its text omits the file, which [cgroups.Error] adds.
type fileError struct {
	file string
	err  error
}

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }
