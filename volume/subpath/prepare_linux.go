// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package subpath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// maxStale is the maximum number of stale mounts on one target that are detached.
const maxStale = 100

// bindSubPath creates the bind mount for Prepare. The caller has checked request.SubPath.
func bindSubPath(ctx context.Context, request Request) error {
	failed := func(op string, err error) error {
		return &Error{SubPath: request.SubPath, Op: op, Err: sanitizeError(err)}
	}
	if err := ctx.Err(); err != nil {
		return failed("open the volume", err)
	}
	v, err := openVolume(request.Volume)
	if err != nil {
		return failed("open the volume", err)
	}
	defer v.close()
	source, err := v.openPath(request.SubPath)
	switch {
	case errors.Is(err, ErrOutside):
		return &Error{SubPath: request.SubPath, Err: err}
	case err != nil:
		return failed("open", err)
	}
	defer unix.Close(source)
	if err := ctx.Err(); err != nil {
		return failed("bind", err)
	}
	bound, err := detachStale(source, request.Target)
	switch {
	case err != nil:
		return failed("unmount the target", err)
	case bound:
		return nil
	}
	if err := createTarget(source, request.Target); err != nil {
		return failed("make the target", err)
	}
	if err := mount.BindFD(source, request.Target, mount.BindOptions{}); err != nil {
		_ = os.Remove(request.Target)
		return failed("bind", err)
	}
	return nil
}

// sanitizeError returns an error without paths of the host: the errno in err, a context error, ErrUnsupported or "internal
// error".
func sanitizeError(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	for _, known := range []error{context.Canceled, context.DeadlineExceeded, errors.ErrUnsupported} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("internal error")
}

// detachStale lazily unmounts stale mounts at target. bound reports whether a bind mount of the open file source remains.
func detachStale(source int, target string) (bound bool, err error) {
	for range maxStale {
		mounted, err := mount.IsMountPoint(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, err
		case !mounted:
			return false, nil
		case isSameFile(source, target):
			return true, nil
		}
		// A container has replaced the mounted file, or the server of its file system no longer responds.
		if err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return false, err
		}
	}
	return false, unix.EBUSY
}

// isSameFile reports whether the file at target is the open file source.
func isSameFile(source int, target string) bool {
	fd, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// Cached attributes: a network file system may hang.
	const flags, mask = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE | unix.STATX_INO
	var a, b unix.Statx_t
	if unix.Statx(source, "", flags, mask, &a) != nil || unix.Statx(fd, "", flags, mask, &b) != nil {
		return false
	}
	return a.Ino == b.Ino && a.Dev_major == b.Dev_major && a.Dev_minor == b.Dev_minor && a.Mode&unix.S_IFMT == b.Mode&unix.S_IFMT
}

// createTarget creates the mount point: a directory or an empty file, as the open file source. It replaces one of the wrong
// type.
func createTarget(source int, target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return err
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	switch info, err := os.Lstat(target); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case isDir && info.IsDir() || !isDir && info.Mode().IsRegular():
		return nil
	default:
		if err := os.Remove(target); err != nil {
			return err
		}
	}
	if isDir {
		return os.Mkdir(target, 0o750)
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}
