// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"io/fs"
	"time"
)

// Attr is a set of what a mount forbids.
type Attr uint

// Attributes of mounts.
const (
	ReadOnly Attr = 1 << iota // no writes
	NoSuid                    // set-user-ID, set-group-ID and file capabilities do not count
	NoDev                     // device files are not opened
	NoExec                    // no program is executed
)

// Error says which operation failed, and on what.
type Error struct {
	Op   string // such as "bind"
	Path string // the target
	Err  error
}

// Error names operation, path and cause.
func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause, for errors.Is.
func (e *Error) Unwrap() error { return e.Err }

// failed adds operation and path to an error, if there is one.
func failed(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Path: path, Err: err}
}

// BindOptions says how a bind is made.
type BindOptions struct {
	Recursive bool // with what is mounted below the source
	Attrs     Attr // of the new mount, and with Recursive of those below it
}

// Bind makes what is at source visible at target too, which exists: a directory for a directory, and a file for anything
// else. Links in source are followed.
func Bind(source, target string, o BindOptions) error {
	return failed("bind", target, bind(source, target, o))
}

// BindFD is Bind of an open file or directory, whatever its name has become. A descriptor that was opened with O_PATH will
// do. It stays open.
func BindFD(source int, target string, o BindOptions) error {
	return failed("bind", target, bindFD(source, target, o))
}

// SetAttrs adds attributes to the mount at target and takes others away; with recursive, from all mounts below it too.
// Before Linux 5.12 it cannot do the latter, and says so.
func SetAttrs(target string, set, unset Attr, recursive bool) error {
	return failed("remount", target, setAttrs(target, set, unset, recursive))
}

// TmpfsOptions says what a tmpfs is like.
type TmpfsOptions struct {
	Size   int64       // the bytes that it holds at most; zero: half of the memory, as the kernel has it
	NoSwap bool        // its pages are not swapped, where the kernel knows the option (6.4); before that they may be
	Mode   fs.FileMode // of its root; zero: 01777, as the kernel has it. Set-group-ID and sticky count.
	Attrs  Attr
}

// Tmpfs mounts a file system in memory on a directory.
func Tmpfs(target string, o TmpfsOptions) error {
	return failed("mount tmpfs", target, tmpfs(target, o))
}

// Hugetlbfs mounts a file system whose files consist of huge pages of that many bytes.
func Hugetlbfs(target string, pageSize int64, attrs Attr) error {
	return failed("mount hugetlbfs", target, hugetlbfs(target, pageSize, attrs))
}

// AttrsOf returns the attributes that are among mount options.
func AttrsOf(options []string) (a Attr) {
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

// Disk mounts the file system of a block device on a directory. The options are those of mount(8): what it passes on to the kernel
// as flags is, what it keeps for itself is left out, and all others are for the file system.
func Disk(source, target, kind string, options []string) error {
	return failed("mount "+kind, target, disk(source, target, kind, options))
}

// IsMountPoint reports whether something is mounted at a path, a bind of the same file system included. It asks only the
// directory that the path is in, never what is mounted, so that a server that is gone does not matter. It does not follow
// a link. Where nothing is at the path the error is fs.ErrNotExist.
func IsMountPoint(path string) (bool, error) {
	mounted, err := isMountPoint(path)
	return mounted, failed("look at mount", path, err)
}

// MakeShared lets what is mounted below a directory appear in other mount namespaces too, those of containers. Nothing
// happens if the directory is on a shared mount already. Otherwise it is bound over itself, with what is mounted below
// it, and that is made shared. It is called once, before anything is mounted below: an older mount would be there twice.
func MakeShared(dir string) error {
	return failed("make shared", dir, makeShared(dir))
}

// defaultGrace is [Unmounter.Grace] where that is zero.
const defaultGrace = 10 * time.Second
