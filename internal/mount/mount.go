// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"io/fs"
	"time"
)

// Attr is a set of mount attributes, each of which restricts the use of the mount.
type Attr uint

// Attributes of a mount, which can be combined.
const (
	ReadOnly Attr = 1 << iota // no writes
	NoSuid                    // set-user-ID, set-group-ID and file capabilities are ignored
	NoDev                     // device files cannot be opened
	NoExec                    // programs cannot be executed
)

// Error is the error of a mount or unmount operation.
type Error struct {
	Op   string // operation, such as "bind"
	Path string // target of the mount
	Err  error
}

// Error returns the operation, the path and the cause as one text.
func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause of the error.
func (e *Error) Unwrap() error { return e.Err }

// wrapError returns an [*Error] with the operation op, the path and the cause err. It returns nil if err is nil.
func wrapError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Path: path, Err: err}
}

// BindOptions configures a bind mount.
type BindOptions struct {
	Recursive bool // include the mounts below the source
	Attrs     Attr // attributes of the new mount and, with Recursive, of the mounts below it
}

// Bind bind-mounts source on target. If source is a directory, target must be an existing directory; otherwise target must
// be an existing file. Bind follows symbolic links in source.
func Bind(source, target string, opts BindOptions) error {
	return wrapError("bind", target, bindPath(source, target, opts))
}

// BindFD bind-mounts the open file or directory sourceFD on the existing target. sourceFD may be opened with O_PATH. BindFD
// does not close it.
func BindFD(sourceFD int, target string, opts BindOptions) error {
	return wrapError("bind", target, bindFD(sourceFD, target, opts))
}

// SetAttrs changes the mount at target: it sets the attributes in set, and clears the attributes in unset. With recursive,
// it also changes all mounts below target. This requires Linux 5.12; on older kernels the error wraps errors.ErrUnsupported.
func SetAttrs(target string, set, unset Attr, recursive bool) error {
	return wrapError("remount", target, setAttrs(target, set, unset, recursive))
}

// TmpfsOptions configures a tmpfs.
type TmpfsOptions struct {
	Size   int64       // limit in bytes; zero: half of the memory, the default of the kernel
	NoSwap bool        // pages are not swapped; ignored before Linux 6.4
	Mode   fs.FileMode // mode of the root directory, including set-group-ID and sticky; zero: 01777, the default of the kernel
	Attrs  Attr
}

// Tmpfs mounts a new tmpfs with opts on the directory target.
func Tmpfs(target string, opts TmpfsOptions) error {
	return wrapError("mount tmpfs", target, mountTmpfs(target, opts))
}

// Hugetlbfs mounts a hugetlbfs on the directory target. Its huge pages have pageSize bytes.
func Hugetlbfs(target string, pageSize int64, attrs Attr) error {
	return wrapError("mount hugetlbfs", target, mountHugetlbfs(target, pageSize, attrs))
}

// ParseAttrs returns the attributes in a list of mount options, such as "ro" and "nosuid". It ignores all other options.
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

// Disk mounts a block device with a file system of type fstype on the directory target, with options as in mount(8). Options
// that are not flags of mount(2) go to the file system, except those for the program mount.
func Disk(device, target, fstype string, options []string) error {
	return wrapError("mount "+fstype, target, mountDisk(device, target, fstype, options))
}

// IsMountPoint reports whether path is a mount point, without following a symbolic link. A bind mount within one file system
// counts too. A file server that hangs cannot block it. If path does not exist, the error wraps fs.ErrNotExist.
func IsMountPoint(path string) (bool, error) {
	mounted, err := isMountPoint(path)
	return mounted, wrapError("look at mount", path, err)
}

// MakeShared makes future mounts below dir visible in other mount namespaces, such as those of containers. If necessary, it
// bind-mounts dir, with all mounts below, on itself. Call it before anything is mounted below dir, because an earlier mount
// would then exist twice.
func MakeShared(dir string) error {
	return wrapError("make shared", dir, makeShared(dir))
}

// defaultGrace is the default of [Unmounter.Grace].
const defaultGrace = 10 * time.Second
