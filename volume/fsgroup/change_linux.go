// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// fields are what a walk wants to know about a file.
const fields = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_UID | unix.STATX_GID

// stat looks at an open file.
func stat(fd int) (st unix.Statx_t, err error) {
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, fields, &st)
	return st, err
}

// kind returns the type of a file, such as unix.S_IFDIR.
func kind(st *unix.Statx_t) uint32 { return uint32(st.Mode) & unix.S_IFMT }

// mounted reports whether a file is the root of a mount, as far as the kernel says (Linux 5.8).
func mounted(st *unix.Statx_t) bool { return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

// openBelow opens a subdirectory that is neither a link nor on another mount (EXDEV).
func openBelow(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV})
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return openAndCompare(dir, name, flags)
}

// openAndCompare is openBelow for a kernel without openat2 (5.6), which knows another mount by its device alone unless it
// has the attribute.
func openAndCompare(dir int, name string, flags int) (int, error) {
	fd, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return -1, err
	}
	var above, st unix.Statx_t
	err = errors.Join(
		unix.Statx(dir, "", unix.AT_EMPTY_PATH, fields, &above),
		unix.Statx(fd, "", unix.AT_EMPTY_PATH, fields, &st),
	)
	if err == nil && (mounted(&st) || st.Dev_major != above.Dev_major || st.Dev_minor != above.Dev_minor) {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// entry changes one entry of a directory, and reports whether it had to. Unless that is likely, it looks before it opens.
func (w *walk) entry(dir *directory, name string, likely bool) (changed bool) {
	if !likely || dir.guarded {
		var st unix.Statx_t
		err := unix.Statx(dir.fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, fields, &st)
		if !w.concerns(dir, name, &st, err) {
			return false
		}
		if dir.guarded {
			return w.change(file{dir.fd, name, unix.AT_SYMLINK_NOFOLLOW}, &st, dir, name)
		}
	}
	fd, err := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil {
		w.fail(dir, name, err)
		return false
	}
	defer unix.Close(fd)
	st, err := stat(fd)
	return w.concerns(dir, name, &st, err) && w.change(opened(fd), &st, dir, name)
}

// concerns reports whether an entry that was looked at is to be changed. A directory that was not said to be one is opened
// later.
func (w *walk) concerns(dir *directory, name string, st *unix.Statx_t, err error) bool {
	switch {
	case errors.Is(err, unix.ENOENT):
		return false
	case err != nil:
		w.fail(dir, name, err)
		return false
	case kind(st) == unix.S_IFDIR:
		w.push(task{dir, name})
		return false
	}
	return !mounted(st) && !w.right(st)
}

// right reports whether a file is as it should be.
func (w *walk) right(st *unix.Statx_t) bool {
	return w.want.right(st.Gid, uint32(st.Mode), kind(st) == unix.S_IFDIR, kind(st) == unix.S_IFLNK)
}

// guarded reports whether nobody but this user can replace an entry of a directory. There a file is changed by its name after
// a look at it, which takes two system calls less than to open it. A container that runs as the same user may replace it,
// which gives the mode of one of its files to another one: no link is followed.
func guarded(st *unix.Statx_t) bool { return int(st.Uid) == unix.Geteuid() && st.Mode&0o022 == 0 }

// file is a file to change: an open one, or an entry of a directory that is guarded.
type file struct {
	fd    int
	name  string
	flags int
}

// opened returns a file that is open.
func opened(fd int) file { return file{fd, "", unix.AT_EMPTY_PATH} }

// change changes a file as far as it is not right, and reports whether it was not. It goes on after an error, as the mode
// may be changed where the group may not.
func (w *walk) change(f file, st *unix.Statx_t, dir *directory, name string) (changed bool) {
	if w.right(st) {
		return false
	}
	setGroup := st.Gid != w.want.gid
	var errs []error
	if setGroup {
		if err := unix.Fchownat(f.fd, f.name, -1, int(w.want.gid), f.flags); err != nil {
			errs = append(errs, fmt.Errorf("chown: %w", err))
		}
	}
	if kind(st) != unix.S_IFLNK {
		had := uint32(st.Mode) & bitsAll
		mode := w.want.mode(had, kind(st) == unix.S_IFDIR)
		if mode != had || setGroup && had&bitsSetID != 0 { // which another group takes away
			if err := f.chmod(mode); err != nil {
				errs = append(errs, fmt.Errorf("chmod: %w", err))
			}
		}
	}
	if len(errs) > 0 {
		w.fail(dir, name, errors.Join(errs...))
	}
	return true
}

// chmod changes the mode of a file, and of no link (fchmodat2 of Linux 6.6).
func (f file) chmod(mode uint32) error {
	err := unix.Fchmodat(f.fd, f.name, mode, f.flags)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		return f.chmodOpen(mode)
	}
	return err
}

// chmodOpen is chmod for older kernels, which change a file that is open by its name below /proc alone.
func (f file) chmodOpen(mode uint32) error {
	if f.name != "" {
		fd, err := unix.Openat(f.fd, f.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		f = opened(fd)
	}
	st, err := stat(f.fd)
	if err != nil {
		return err
	}
	if kind(&st) == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(f.fd), mode)
}

// fail notes that a file could not be changed.
func (w *walk) fail(dir *directory, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed.Files++
	if len(w.failed.Errs) < maxErrs {
		w.failed.Errs = append(w.failed.Errs, fmt.Errorf("%s: %w", dir.path(name), err))
	}
}
