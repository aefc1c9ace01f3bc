// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package dirusage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirent"
)

// stepFiles is the number of files between two calls of takeStep.
const stepFiles = 64

// Run adds the disk usage of the directory or file at path to w. It follows symbolic links in the parent directories of
// path. It counts a symbolic link at path or below it, but does not follow it.
func (w *Walk) Run(ctx context.Context, path string) error {
	if err := w.takeStep(ctx); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	st, err := statEntry(fd, "")
	unix.Close(fd)
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	w.device = deviceOf(&st)
	directory := isDirectory(&st)
	if !w.Flat || !directory {
		w.countFile(st.Ino, st.Blocks, uint64(st.Nlink), directory)
	}
	if !directory {
		return nil
	}
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // O_NOATIME requires the owner of the directory
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if w.Buf == nil {
		w.Buf = make([]byte, dirent.BufferSize)
	}
	defer unix.Close(fd)
	if err := w.countDirectory(ctx, &fd, w.Buf, 1); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if w.TooDeep {
		return fmt.Errorf("%s: directories below level %d are not counted", path, maxLevels)
	}
	return nil
}

// countDirectory adds the usage of all files below an open directory to w. In a deep tree it may close and reopen the
// directory.
func (w *Walk) countDirectory(ctx context.Context, fd *int, buf []byte, level int) error {
	for {
		var below []string
		var failed error
		files := 0
		used, err := dirent.Next(*fd, buf, func(name []byte, t dirent.Type) {
			if failed != nil || w.Flat && t == dirent.Directory {
				return
			}
			if w.countEntry(*fd, string(name)) {
				below = append(below, string(name))
			}
			if files++; files%stepFiles == 0 {
				failed = w.takeStep(ctx)
			}
		})
		if err == nil && failed == nil {
			err = w.takeStep(ctx)
		}
		if err = errors.Join(failed, err); err != nil {
			return err
		}
		// below has copies of the names, so that the next level can reuse buf.
		for _, name := range below {
			if err := w.enterDirectory(ctx, fd, name, buf, level); err != nil {
				return err
			}
		}
		if used == 0 {
			return nil
		}
	}
}

// countEntry adds a file to the usage, and reports whether it is a directory that the walk must enter.
func (w *Walk) countEntry(parent int, name string) bool {
	st, err := statEntry(parent, name)
	if err != nil || deviceOf(&st) != w.device || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		// Removed meanwhile, or a mount point.
		return false
	}
	directory := isDirectory(&st)
	if w.Flat && directory {
		return false
	}
	w.countFile(st.Ino, st.Blocks, uint64(st.Nlink), directory)
	return directory
}

// statEntry returns the attributes of a file in the directory fd, or of the directory itself if name is empty.
func statEntry(fd int, name string) (st unix.Statx_t, err error) {
	// AT_STATX_DONT_SYNC returns cached attributes: a file server that hangs does not block the walk.
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC | unix.AT_EMPTY_PATH
	const what = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	err = unix.Statx(fd, name, flags, what, &st)
	return st, err
}

func deviceOf(st *unix.Statx_t) [2]uint32 { return [2]uint32{st.Dev_major, st.Dev_minor} }

func isDirectory(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// errMoved means that a directory was moved to another parent during the measurement.
var errMoved = errors.New("a directory was moved during the measurement")

// enterDirectory adds the files in a subdirectory of *parent to the usage, unless a file system was mounted there since
// countEntry.
func (w *Walk) enterDirectory(ctx context.Context, parent *int, name string, buf []byte, level int) error {
	if level >= maxLevels {
		w.TooDeep = true
		return nil
	}
	fd, err := unix.Openat2(*parent, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return nil // removed or replaced, or something is mounted there
	case err != nil:
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { unix.Close(fd) }()
	if level < maxOpen {
		err := w.countDirectory(ctx, &fd, buf, level+1)
		if errors.Is(err, errMoved) {
			w.TooDeep = true // the remaining part of that tree is skipped
			err = nil
		}
		return err
	}
	reopen, err := suspendDir(parent)
	if err != nil {
		return err
	}
	if err := w.countDirectory(ctx, &fd, buf, level+1); err != nil {
		return err
	}
	return reopen(fd)
}

// suspendDir closes the directory *dir, because a deep tree would need too many open descriptors. reopen opens it again as
// the parent of subdirectory, at the same position.
func suspendDir(dir *int) (reopen func(subdirectory int) error, err error) {
	st, err := statEntry(*dir, "")
	if err != nil {
		return nil, fmt.Errorf("stat directory: %w", err)
	}
	offset, err := unix.Seek(*dir, 0, io.SeekCurrent)
	if err != nil {
		return nil, fmt.Errorf("seek directory: %w", err)
	}
	unix.Close(*dir)
	*dir = -1
	return func(subdirectory int) error {
		fd, err := unix.Openat(subdirectory, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%w: %w", errMoved, err)
		}
		*dir = fd
		now, err := statEntry(fd, "")
		if err != nil || now.Ino != st.Ino || deviceOf(&now) != deviceOf(&st) {
			// The subdirectory was moved to another parent.
			return errors.Join(errMoved, err)
		}
		_, err = unix.Seek(fd, offset, io.SeekStart)
		return err
	}, nil
}
