// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"io/fs"
	"time"
)

// Attr is a set of restrictions of a mount.
type Attr uint

// Attributes of a mount, which can be combined.
const (
	ReadOnly Attr = 1 << iota // no writes
	NoSuid                    // set-user-ID, set-group-ID and file capabilities are ignored
	NoDev                     // device files cannot be opened
	NoExec                    // programs cannot be executed
)

// Error is the error of one operation.
type Error struct {
	Op   string // such as "bind"
	Path string // the target
	Err  error
}

// Error returns "operation path: cause".
func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// wrapError returns err as an [*Error] with operation and path; nil for nil.
func wrapError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Path: path, Err: err}
}

// BindOptions configures a bind mount.
type BindOptions struct {
	Recursive bool // include the mounts below the source
	Attrs     Attr // of the new mount, and with Recursive of the mounts below it
}

// Bind mounts source on target. Target must exist: a directory for a directory, else a file. Symbolic links in source are
// followed.
func Bind(source, target string, opts BindOptions) error {
	return wrapError("bind", target, bindPath(source, target, opts))
}

// BindFD mounts an open file or directory on target. sourceFD may be opened with O_PATH, and stays open.
func BindFD(sourceFD int, target string, opts BindOptions) error {
	return wrapError("bind", target, bindFD(sourceFD, target, opts))
}

// SetAttrs sets and clears attributes of the mount at target. With recursive it does so for all mounts below it too, which
// requires Linux 5.12; on older kernels the error wraps errors.ErrUnsupported.
func SetAttrs(target string, set, unset Attr, recursive bool) error {
	return wrapError("remount", target, setAttrs(target, set, unset, recursive))
}

// TmpfsOptions configures a tmpfs.
type TmpfsOptions struct {
	Size   int64       // limit in bytes; zero: half of the memory, the default of the kernel
	NoSwap bool        // pages are not swapped; ignored before Linux 6.4
	Mode   fs.FileMode // of the root directory, including set-group-ID and sticky; zero: 01777, the default of the kernel
	Attrs  Attr
}

// Tmpfs mounts a tmpfs on the directory target.
func Tmpfs(target string, opts TmpfsOptions) error {
	return wrapError("mount tmpfs", target, mountTmpfs(target, opts))
}

// Hugetlbfs mounts a file system of huge pages, each of pageSize bytes, on the directory target.
func Hugetlbfs(target string, pageSize int64, attrs Attr) error {
	return wrapError("mount hugetlbfs", target, mountHugetlbfs(target, pageSize, attrs))
}

// ParseAttrs returns the attributes in a list of mount options, such as "ro" and "nosuid".
func ParseAttrs(options []string) (a Attr) {
	for _, o := range options {
		switch o {
		case "ro":
			a |= ReadOnly
		case "nosuid":
			a |= NoSuid
		case "nodev":
			a |= NoDev
		case "noexec":
			a |= NoExec
		}
	}
	return a
}

// Disk mounts the file system of a block device on a directory. options are those of mount(8): flags are passed to the kernel,
// options of the mount command are ignored, and all remaining options are passed to the file system.
func Disk(source, target, kind string, options []string) error {
	return wrapError("mount "+kind, target, mountDisk(source, target, kind, options))
}

// IsMountPoint reports whether path is a mount point, including a bind mount of the same file system. It accesses only the parent
// directory, so a hung file server does not block it. It does not follow a symbolic link. A missing path is fs.ErrNotExist.
func IsMountPoint(path string) (bool, error) {
	mounted, err := isMountPoint(path)
	return mounted, wrapError("look at mount", path, err)
}

// MakeShared makes mounts below dir propagate to other mount namespaces, such as those of containers. If dir is not on a shared
// mount, it is bind-mounted on itself, with all mounts below it, and made shared. Call it once, before mounting below dir:
// earlier mounts would appear twice.
func MakeShared(dir string) error {
	return wrapError("make shared", dir, makeShared(dir))
}

// defaultGrace is the default of [Unmounter.Grace].
const defaultGrace = 10 * time.Second
