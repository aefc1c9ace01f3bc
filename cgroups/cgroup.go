// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"strconv"
)

// CgroupWriter creates, limits and removes cgroups. A writer may be used by several goroutines, and several writers
// may work on one tree. To it and to the other interfaces here a context that has ended is an error wrapping its cause,
// and nothing is done.
type CgroupWriter interface {
	// Apply creates the cgroup where it is missing, with all of its parents, and sets what r sets. It may be called
	// again with the same or other resources; it writes only what differs. A limit that the host cannot enforce is
	// an error, except where the writer said at its start that it goes without.
	Apply(ctx context.Context, p Path, r Resources) error
	// Remove kills what runs in the cgroup and below, and removes them. An absent cgroup is success; the root is
	// refused.
	Remove(ctx context.Context, p Path) error
}

// Lister tells what is in a tree of cgroups.
type Lister interface {
	// Children returns the names of the cgroups directly below p, sorted, as components of a [Path]. An absent cgroup
	// is an error wrapping [io/fs.ErrNotExist].
	Children(ctx context.Context, p Path) ([]string, error)
	// Procs returns the processes of p and of everything below it, sorted. An absent cgroup is an error wrapping
	// [io/fs.ErrNotExist].
	Procs(ctx context.Context, p Path) ([]int, error)
}

// Reader reads one cgroup. An absent cgroup is an error wrapping [io/fs.ErrNotExist].
type Reader interface {
	// Limits returns what is in force. A field whose controller is not there is unset. CPUShares is what remains of
	// it after the kernel's own unit, see [RoundTripShares].
	Limits(ctx context.Context, p Path) (Resources, error)
	// Stats returns what is used. What the host does not count is zero, or nil where the type has nil.
	Stats(ctx context.Context, p Path) (Stats, error)
}

// Killer is the optional capability of a writer to kill what runs in a cgroup and below without removing it. It
// returns when nothing runs any more; an absent cgroup is success.
type Killer interface {
	// Kill sends SIGKILL to every process of p and below, also to those that are forked meanwhile.
	Kill(ctx context.Context, p Path) error
}

// Freezer is the optional capability of a writer to stop and go on with all that runs in a cgroup and below. It
// returns when the kernel says so.
type Freezer interface {
	// Freeze stops all processes of p and below. A frozen cgroup can be killed and removed.
	Freeze(ctx context.Context, p Path) error
	// Thaw lets them go on. It does nothing to a cgroup that is not frozen.
	Thaw(ctx context.Context, p Path) error
}

// Error is what a cgroup operation returns: what was done to which cgroup, and why it was not.
type Error struct {
	Op   string // "apply", "remove", "kill", "freeze", "thaw", "list", "read", "reclaim" or "watch"
	Path Path
	File string // of the cgroup, such as "memory.max"; empty where no file is to blame
	Err  error
}

// Error returns "op cgroup path: cause", with the file where there is one. A path that could deceive a reader of logs
// is quoted.
func (e *Error) Error() string {
	path := e.Path.Cgroupfs()
	if quoted := strconv.Quote(path); quoted[1:len(quoted)-1] != path {
		path = quoted
	}
	text := e.Op + " cgroup " + path
	if e.File != "" {
		text += ": " + e.File
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
