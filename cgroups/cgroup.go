// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"context"
	"strconv"
)

// CgroupWriter creates, limits and removes cgroups. Its methods may be called by several goroutines, and several writers may
// share a cgroup tree. If ctx has ended, a method does nothing and returns an error that wraps the cause, as in all interfaces of
// this package.
type CgroupWriter interface {
	// Apply creates the cgroup p and its missing parents, and sets the fields that are set in r. It writes only files that
	// differ. A limit that the host cannot enforce is an error, unless the writer was configured to skip it.
	Apply(ctx context.Context, p Path, r Resources) error
	// Remove kills the processes of p and its descendants, and removes these cgroups. An absent cgroup is success. The root
	// cannot be removed.
	Remove(ctx context.Context, p Path) error
}

// Lister lists the cgroups and processes of a tree.
type Lister interface {
	// Children returns the sorted names of the cgroups directly below p. Each is a component of a [Path]. If p does not exist,
	// the error wraps [io/fs.ErrNotExist].
	Children(ctx context.Context, p Path) ([]string, error)
	// Procs returns the sorted PIDs of the processes in p and its descendants. If p does not exist, the error wraps
	// [io/fs.ErrNotExist].
	Procs(ctx context.Context, p Path) ([]int, error)
}

// Reader reads the limits and the usage of a cgroup. If the cgroup does not exist, the error wraps [io/fs.ErrNotExist].
type Reader interface {
	// Limits returns the limits in force. A field is unset if its controller is not available. On cgroup v2 CPUShares is the
	// value converted to cpu.weight and back, see [RoundTripShares].
	Limits(ctx context.Context, p Path) (Resources, error)
	// Stats returns the usage of p and its descendants. A value that the host does not count is zero, or nil if its type allows
	// that.
	Stats(ctx context.Context, p Path) (Stats, error)
}

// Killer is an optional interface of a [CgroupWriter]: it kills the processes of a cgroup without removing it. Kill returns when
// no process runs any more. An absent cgroup is success.
type Killer interface {
	// Kill sends SIGKILL to every process of p and its descendants, including processes forked during the call.
	Kill(ctx context.Context, p Path) error
}

// Freezer is an optional interface of a [CgroupWriter]: it stops and resumes the processes of a cgroup. Its methods return when
// the kernel reports the new state.
type Freezer interface {
	// Freeze stops all processes of p and its descendants. A frozen cgroup can be killed and removed.
	Freeze(ctx context.Context, p Path) error
	// Thaw resumes these processes. It does nothing if p is not frozen.
	Thaw(ctx context.Context, p Path) error
}

// Error is the error of an operation on a cgroup: the operation, the cgroup, the file and the cause.
type Error struct {
	Op   string // "apply", "remove", "kill", "freeze", "thaw", "list", "read", "reclaim" or "watch"
	Path Path
	File string // file of the cgroup, for example "memory.max"; empty if no file caused the error
	Err  error
}

// Error returns the text "OP cgroup PATH: FILE: CAUSE". An empty file is omitted. A path with special characters is quoted,
// because it could forge log entries.
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
