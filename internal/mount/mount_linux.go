// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// setattrFlags returns the attributes of a as flags of mount_setattr(2).
func (a Attr) setattrFlags() uint64 {
	var flags uint64
	for _, f := range []struct {
		attr Attr
		flag uint64
	}{
		{ReadOnly, unix.MOUNT_ATTR_RDONLY},
		{NoSuid, unix.MOUNT_ATTR_NOSUID},
		{NoDev, unix.MOUNT_ATTR_NODEV},
		{NoExec, unix.MOUNT_ATTR_NOEXEC},
	} {
		if a&f.attr != 0 {
			flags |= f.flag
		}
	}
	return flags
}

// mountFlags returns the attributes of a as flags of mount(2). Their values are the same as in mount_setattr(2).
func (a Attr) mountFlags() uintptr { return uintptr(a.setattrFlags()) }

// fdPath returns a path for the open file fd. It refers to this file even if the file is renamed.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openTarget opens the mount target at path with O_PATH and returns its descriptor. A symbolic link at path is an error.
func openTarget(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		_ = unix.Close(fd)
		return -1, unix.ELOOP
	}
	return fd, nil
}

func bindPath(source, target string, opts BindOptions) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return bindFD(fd, target, opts)
}

func bindFD(sourceFD int, target string, opts BindOptions) error {
	targetFD, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(targetFD)
	if err := bindTree(sourceFD, targetFD, opts); !isUnsupported(err) {
		return err
	}
	return bindAndRemount(sourceFD, targetFD, target, opts)
}

// isUnsupported reports whether err may mean that the kernel does not have a system call or that a seccomp filter blocks
// the system call.
func isUnsupported(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// bindTree bind-mounts sourceFD on targetFD with the system calls of Linux 5.12. They set the attributes before the mount
// becomes visible.
func bindTree(sourceFD, targetFD int, opts BindOptions) error {
	recursive := uint(0)
	if opts.Recursive {
		recursive = unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(sourceFD, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if opts.Attrs != 0 {
		attr := unix.MountAttr{Attr_set: opts.Attrs.setattrFlags()}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive, &attr); err != nil {
			return err
		}
	}
	return unix.MoveMount(tree, "", targetFD, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bindAndRemount bind-mounts sourceFD on targetFD, whose path is target, on kernels without the system calls of bindTree.
func bindAndRemount(sourceFD, targetFD int, target string, opts BindOptions) error {
	flags := uintptr(unix.MS_BIND)
	if opts.Recursive {
		flags |= unix.MS_REC
	}
	if err := unix.Mount(fdPath(sourceFD), fdPath(targetFD), "", flags, ""); err != nil || opts.Attrs == 0 {
		return err
	}
	// mount(2) sets the attributes only after the mount.
	err := remountAttrs(target, opts.Attrs, 0)
	if err == nil && opts.Recursive {
		err = fmt.Errorf("recursive attributes: %w", errors.ErrUnsupported)
	}
	if err != nil {
		return errors.Join(err, unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
	}
	return nil
}

func setAttrs(target string, set, unset Attr, recursive bool) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	attr := unix.MountAttr{Attr_set: set.setattrFlags(), Attr_clr: unset.setattrFlags()}
	err = unix.MountSetattr(at, "", flags, &attr)
	switch {
	case !isUnsupported(err):
		return err
	case recursive:
		return fmt.Errorf("recursive attributes: %w", errors.ErrUnsupported)
	}
	return remountAttrs(target, set, unset)
}

// remountAttrs sets and clears attributes of the mount at target with mount(2).
func remountAttrs(target string, set, unset Attr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return err
	}
	// mount(2) clears all attributes that are not passed to it.
	const same = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
	flags := uintptr(st.Flags) & same
	if uintptr(st.Flags)&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	flags = flags&^unset.mountFlags() | set.mountFlags()
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

func mountTmpfs(target string, opts TmpfsOptions) error {
	if opts.Size < 0 {
		return fmt.Errorf("size %d: %w", opts.Size, unix.EINVAL)
	}
	var data []string
	if opts.Size > 0 {
		data = append(data, "size="+strconv.FormatInt(opts.Size, 10))
	}
	if opts.Mode != 0 {
		data = append(data, fmt.Sprintf("mode=%04o", unixMode(opts.Mode)))
	}
	if opts.NoSwap {
		err := mountFileSystem("tmpfs", target, strings.Join(append(data, "noswap"), ","), opts.Attrs)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return mountFileSystem("tmpfs", target, strings.Join(data, ","), opts.Attrs)
}

// unixMode returns m in the representation of the kernel.
func unixMode(m fs.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&fs.ModeSetuid != 0 {
		mode |= unix.S_ISUID
	}
	if m&fs.ModeSetgid != 0 {
		mode |= unix.S_ISGID
	}
	if m&fs.ModeSticky != 0 {
		mode |= unix.S_ISVTX
	}
	return mode
}

func mountHugetlbfs(target string, pageSize int64, attrs Attr) error {
	if pageSize <= 0 {
		return fmt.Errorf("page size %d: %w", pageSize, unix.EINVAL)
	}
	return mountFileSystem("hugetlbfs", target, "pagesize="+strconv.FormatInt(pageSize, 10), attrs)
}

// mountFileSystem mounts a file system that needs no device on target. kind is its type, and data has its options.
func mountFileSystem(kind, target, data string, attrs Attr) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Mount(kind, fdPath(at), kind, attrs.mountFlags(), data)
}
