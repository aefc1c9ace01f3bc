// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package fsgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// statMask selects the fields of statx(2) that a walk needs.
const statMask = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_UID | unix.STATX_GID

// statFD returns the attributes of an open file.
func statFD(fd int) (st unix.Statx_t, err error) {
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, &st)
	return st, err
}

// fileType returns the type of a file, such as unix.S_IFDIR.
func fileType(st *unix.Statx_t) uint32 { return uint32(st.Mode) & unix.S_IFMT }

// isMountRoot reports whether the file with these attributes is the root of a mount. It always returns false before Linux
// 5.8.
func isMountRoot(st *unix.Statx_t) bool { return st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 }

// openBelow opens a subdirectory of the directory dir. A mount point yields EXDEV, and a symbolic link another error.
func openBelow(dir int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags, Resolve: unix.RESOLVE_NO_XDEV})
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return fd, err
	}
	return openAndCompare(dir, name, flags)
}

// openAndCompare opens a subdirectory like openBelow, but without openat2, which needs Linux 5.6 and may be forbidden by
// seccomp.
func openAndCompare(dir int, name string, flags int) (int, error) {
	fd, err := unix.Openat(dir, name, flags, 0)
	if err != nil {
		return -1, err
	}
	var above, st unix.Statx_t
	err = errors.Join(
		unix.Statx(dir, "", unix.AT_EMPTY_PATH, statMask, &above),
		unix.Statx(fd, "", unix.AT_EMPTY_PATH, statMask, &st),
	)
	// Before Linux 5.8, the device number alone misses a bind mount from the same file system.
	if err == nil && (isMountRoot(&st) || st.Dev_major != above.Dev_major || st.Dev_minor != above.Dev_minor) {
		err = unix.EXDEV
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// changeEntry corrects group and mode of a directory entry, and reports whether that was necessary. likely is the caller's
// guess.
func (w *walk) changeEntry(dir *directory, name string, likely bool) (changed bool) {
	// This check saves system calls for a correct file.
	if !likely || dir.guarded {
		var st unix.Statx_t
		err := unix.Statx(dir.fd, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, statMask, &st)
		if !w.shouldChange(dir, name, &st, err) {
			return false
		}
		if dir.guarded {
			return w.changeFile(file{dir.fd, name, unix.AT_SYMLINK_NOFOLLOW}, &st, dir, name)
		}
	}
	fd, err := unix.Openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil {
		w.recordFailure(dir, name, err)
		return false
	}
	defer unix.Close(fd)
	st, err := statFD(fd)
	return w.shouldChange(dir, name, &st, err) && w.changeFile(openFile(fd), &st, dir, name)
}

// shouldChange reports whether a directory entry must be changed, given its attributes or the error of reading them. It queues a
// subdirectory as a task.
func (w *walk) shouldChange(dir *directory, name string, st *unix.Statx_t, err error) bool {
	switch {
	case errors.Is(err, unix.ENOENT):
		return false
	case err != nil:
		w.recordFailure(dir, name, err)
		return false
	case fileType(st) == unix.S_IFDIR:
		w.pushTasks(task{dir, name})
		return false
	}
	return !isMountRoot(st) && !w.isCorrect(st)
}

// isCorrect reports whether the file with these attributes has the right group and mode.
func (w *walk) isCorrect(st *unix.Statx_t) bool {
	return w.target.isCorrect(st.Gid, uint32(st.Mode), fileType(st) == unix.S_IFDIR, fileType(st) == unix.S_IFLNK)
}

// isGuarded reports whether only the current user can replace entries of the directory with these attributes.
//
// Its files are changed by name, which saves two system calls per file. If a container of this user replaces a file meanwhile,
// only the mode of another file in the directory is changed: symbolic links are not followed.
func isGuarded(st *unix.Statx_t) bool { return int(st.Uid) == unix.Geteuid() && st.Mode&0o022 == 0 }

// file identifies a file to change. It is an open descriptor, or an entry of a directory for which isGuarded is true.
type file struct {
	fd    int
	name  string
	flags int
}

// openFile returns the file of an open descriptor.
func openFile(fd int) file { return file{fd, "", unix.AT_EMPTY_PATH} }

// changeFile corrects group and mode of a file, and reports whether that was necessary. It records errors with dir and name.
func (w *walk) changeFile(target file, st *unix.Statx_t, dir *directory, name string) (changed bool) {
	if w.isCorrect(st) {
		return false
	}
	setGroup := st.Gid != w.target.gid
	var errs []error
	if setGroup {
		if err := unix.Fchownat(target.fd, target.name, -1, int(w.target.gid), target.flags); err != nil {
			errs = append(errs, fmt.Errorf("chown: %w", err)) // still change the mode
		}
	}
	if fileType(st) != unix.S_IFLNK {
		had := uint32(st.Mode) & bitsAll
		mode := w.target.targetMode(had, fileType(st) == unix.S_IFDIR)
		if mode != had || setGroup && had&bitsSetID != 0 { // a new group clears the set-ID bits
			if err := target.setMode(mode); err != nil {
				errs = append(errs, fmt.Errorf("chmod: %w", err))
			}
		}
	}
	if len(errs) > 0 {
		w.recordFailure(dir, name, errors.Join(errs...))
	}
	return true
}

// setMode sets the mode of f with fchmodat2 (Linux 6.6), or else with setModeByProc. It never follows a symbolic link.
func (f file) setMode(mode uint32) error {
	err := unix.Fchmodat(f.fd, f.name, mode, f.flags)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) {
		return f.setModeByProc(mode)
	}
	return err
}

// setModeByProc sets the mode of f through /proc/self/fd. Without fchmodat2, only this does not follow symbolic links.
func (f file) setModeByProc(mode uint32) error {
	if f.name != "" {
		fd, err := unix.Openat(f.fd, f.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		f = openFile(fd)
	}
	st, err := statFD(f.fd)
	if err != nil {
		return err
	}
	if fileType(&st) == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(f.fd), mode)
}

// recordFailure records the error of changing an entry of the directory, for the [FilesError].
func (w *walk) recordFailure(dir *directory, name string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed.Files++
	if len(w.failed.Errs) < maxErrs {
		w.failed.Errs = append(w.failed.Errs, fmt.Errorf("%s: %w", dir.entryPath(name), err))
	}
}
