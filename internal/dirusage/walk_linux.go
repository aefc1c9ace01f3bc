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

// batch is after how many files the walk looks at its budget.
const batch = 64

// Run measures what is at a path: a directory, or one file. The path itself may lead through links, as those of a node
// do; nothing below it does.
func (w *Walk) Run(ctx context.Context, path string) error {
	if err := w.step(ctx); err != nil {
		return err
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	st, err := statx(fd, "")
	unix.Close(fd)
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	w.device = device(&st)
	directory := isDirectory(&st)
	if !w.Flat || !directory {
		w.count(st.Ino, st.Blocks, uint64(st.Nlink), directory)
	}
	if !directory {
		return nil
	}
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOATIME, 0)
	if errors.Is(err, unix.EPERM) { // to leave the time of access alone takes the owner
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	if w.Buf == nil {
		w.Buf = make([]byte, dirent.BufferSize)
	}
	defer unix.Close(fd)
	if err := w.directory(ctx, &fd, w.Buf, 1); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if w.Deep {
		return fmt.Errorf("%s: what is more than %d levels deep is not counted", path, maxLevels)
	}
	return nil
}

// directory adds the files of an open directory, whose descriptor may become another one of the same directory. It reads a block of entries
// before it enters the subdirectories of the block, so that one buffer is enough.
func (w *Walk) directory(ctx context.Context, fd *int, buf []byte, level int) error {
	for {
		var below []string
		var failed error
		files := 0
		used, err := dirent.Next(*fd, buf, func(name []byte, t dirent.Type) {
			if failed != nil || w.Flat && t == dirent.Directory {
				return
			}
			if w.entry(*fd, string(name)) {
				below = append(below, string(name))
			}
			if files++; files%batch == 0 {
				failed = w.step(ctx)
			}
		})
		if err == nil && failed == nil {
			err = w.step(ctx)
		}
		if err = errors.Join(failed, err); err != nil {
			return err
		}
		for _, name := range below {
			if err := w.enter(ctx, fd, name, buf, level); err != nil {
				return err
			}
		}
		if used == 0 {
			return nil
		}
	}
}

// entry counts one entry and reports whether to enter it. What was removed meanwhile, and what is mounted there, does not
// count.
func (w *Walk) entry(parent int, name string) bool {
	st, err := statx(parent, name)
	if err != nil || device(&st) != w.device || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return false
	}
	directory := isDirectory(&st)
	if w.Flat && directory {
		return false
	}
	w.count(st.Ino, st.Blocks, uint64(st.Nlink), directory)
	return directory
}

// statx looks at an entry of a directory, or without a name at what is open. It asks no server, so that a dead one that is
// mounted there keeps nobody.
func statx(fd int, name string) (st unix.Statx_t, err error) {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC | unix.AT_EMPTY_PATH
	const what = unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	err = unix.Statx(fd, name, flags, what, &st)
	return st, err
}

func device(st *unix.Statx_t) [2]uint32 { return [2]uint32{st.Dev_major, st.Dev_minor} }

func isDirectory(st *unix.Statx_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// errMoved reports that a directory is not above its subdirectory any more.
var errMoved = errors.New("directories are moved meanwhile")

// enter goes into a directory. openat2 keeps it from a file system that was mounted there since, also one of the same
// device.
func (w *Walk) enter(ctx context.Context, parent *int, name string, buf []byte, level int) error {
	if level >= maxLevels {
		w.Deep = true
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
		err := w.directory(ctx, &fd, buf, level+1)
		if errors.Is(err, errMoved) {
			w.Deep = true // that part of the tree is left
			err = nil
		}
		return err
	}
	again, err := suspend(parent)
	if err != nil {
		return err
	}
	if err := w.directory(ctx, &fd, buf, level+1); err != nil {
		return err
	}
	return again(fd)
}

// suspend closes a directory, so that a deep tree takes few descriptors. The function that it returns opens the directory again, as the
// parent of a subdirectory, and reads on where it was.
func suspend(dir *int) (again func(subdirectory int) error, err error) {
	st, err := statx(*dir, "")
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
		now, err := statx(fd, "")
		if err != nil || now.Ino != st.Ino || device(&now) != device(&st) {
			return errors.Join(errMoved, err)
		}
		_, err = unix.Seek(fd, offset, io.SeekStart)
		return err
	}, nil
}
