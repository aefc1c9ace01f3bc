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

// setattr returns attributes as mount_setattr has them.
func (a Attr) setattr() uint64 {
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

// mountFlags returns attributes as mount(2) has them, which are the same bits.
func (a Attr) mountFlags() uintptr { return uintptr(a.setattr()) }

// fdPath is a path that leads to an open file, whatever its name has become.
func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// openTarget opens what something is to be mounted on. A link is refused.
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

func bind(source, target string, o BindOptions) error {
	fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return bindFD(fd, target, o)
}

func bindFD(source int, target string, o BindOptions) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := bindTree(source, at, o); !lacking(err) {
		return err
	}
	return bindAndRemount(source, at, target, o)
}

// lacking reports whether a system call may be one that this kernel, or a filter of system calls, does not have.
func lacking(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }

// bindTree binds with the system calls of Linux 5.12: the mount has its attributes before anybody can see it.
func bindTree(source, at int, o BindOptions) error {
	recursive := uint(0)
	if o.Recursive {
		recursive = unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(source, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|recursive)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if o.Attrs != 0 {
		attr := unix.MountAttr{Attr_set: o.Attrs.setattr()}
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|recursive, &attr); err != nil {
			return err
		}
	}
	return unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

// bindAndRemount binds with mount(2), which does not do both at once. What it cannot finish it undoes.
func bindAndRemount(source, at int, target string, o BindOptions) error {
	flags := uintptr(unix.MS_BIND)
	if o.Recursive {
		flags |= unix.MS_REC
	}
	if err := unix.Mount(fdPath(source), fdPath(at), "", flags, ""); err != nil || o.Attrs == 0 {
		return err
	}
	err := remount(target, o.Attrs, 0)
	if err == nil && o.Recursive {
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
	attr := unix.MountAttr{Attr_set: set.setattr(), Attr_clr: unset.setattr()}
	err = unix.MountSetattr(at, "", flags, &attr)
	switch {
	case !lacking(err):
		return err
	case recursive:
		return fmt.Errorf("recursive attributes: %w", errors.ErrUnsupported)
	}
	return remount(target, set, unset)
}

// remount changes attributes with mount(2), which has to be told those that stay as well.
func remount(target string, set, unset Attr) error {
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return err
	}
	const same = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
	flags := uintptr(st.Flags) & same
	if uintptr(st.Flags)&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	flags = flags&^unset.mountFlags() | set.mountFlags()
	return unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|flags, "")
}

func tmpfs(target string, o TmpfsOptions) error {
	if o.Size < 0 {
		return fmt.Errorf("size %d: %w", o.Size, unix.EINVAL)
	}
	var data []string
	if o.Size > 0 {
		data = append(data, "size="+strconv.FormatInt(o.Size, 10))
	}
	if o.Mode != 0 {
		data = append(data, fmt.Sprintf("mode=%04o", unixMode(o.Mode)))
	}
	if o.NoSwap {
		err := mountNew("tmpfs", target, strings.Join(append(data, "noswap"), ","), o.Attrs)
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	return mountNew("tmpfs", target, strings.Join(data, ","), o.Attrs)
}

// unixMode returns a mode as the kernel has it.
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

func hugetlbfs(target string, pageSize int64, attrs Attr) error {
	if pageSize <= 0 {
		return fmt.Errorf("page size %d: %w", pageSize, unix.EINVAL)
	}
	return mountNew("hugetlbfs", target, "pagesize="+strconv.FormatInt(pageSize, 10), attrs)
}

// mountNew mounts a file system without a device.
func mountNew(kind, target, data string, attrs Attr) error {
	at, err := openTarget(target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Mount(kind, fdPath(at), kind, attrs.mountFlags(), data)
}
