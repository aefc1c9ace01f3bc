// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mountns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Limits of a copied directory. Each entry is a mount, and what the container adds is in memory.
const (
	maxEntries = 1000
	copySize   = "64m"
)

// device is the file system that a file is on.
type device struct{ major, minor uint32 }

// ownDirectory returns a directory of the host as one that can be written to without touching it: itself, if it is a
// copy already, else a copy, which is now at its place.
func (s *space) ownDirectory(dir int) (int, error) {
	st, err := look(dir)
	if err != nil {
		return -1, err
	}
	if s.copies[device{st.Dev_major, st.Dev_minor}] {
		return unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	}
	entries, err := list(dir)
	if err != nil {
		return -1, err
	}
	defer closeAll(entries)
	own, err := newTmpfs(st)
	if err != nil {
		return -1, err
	}
	if err := s.replace(dir, st, own, entries); err != nil {
		return -1, errors.Join(err, unix.Close(own))
	}
	if st, err = look(own); err != nil {
		return -1, errors.Join(err, unix.Close(own))
	}
	s.copies[device{st.Dev_major, st.Dev_minor}] = true
	return own, nil
}

// replace puts a tmpfs where a directory is, and the entries of that into it.
func (s *space) replace(dir int, st unix.Statx_t, own int, entries []entry) error {
	var root unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO|unix.STATX_MNT_ID, &root); err != nil {
		return os.NewSyscallError("statx", err)
	}
	isRoot := root.Mnt_id == st.Mnt_id && root.Ino == st.Ino
	at := dir
	if isRoot { // over which nothing can be mounted
		var err error
		if at, err = unix.Open(s.scratch, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return &os.PathError{Op: "open", Path: s.scratch, Err: err}
		}
		defer unix.Close(at)
	}
	// A file system that is mounted nowhere takes no mounts before Linux 6.15.
	if err := unix.MoveMount(own, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	for i := range entries {
		if err := entries[i].put(own); err != nil {
			return fmt.Errorf("entry %q: %w", entries[i].name, err)
		}
	}
	if !isRoot {
		return nil
	}
	return changeRoot(own)
}

// changeRoot makes a mount the root of the namespace and of this thread.
func changeRoot(root int) error {
	if err := unix.Fchdir(root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	// The old root is over the new one now, and the working directory in it.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount2", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// newTmpfs returns a file system whose root looks like a directory. It is mounted nowhere.
func newTmpfs(like unix.Statx_t) (int, error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, lacking("fsopen", err)
	}
	defer unix.Close(context)
	for _, option := range [][2]string{
		{"source", "tmpfs"},
		{"size", copySize},
		{"mode", strconv.FormatUint(uint64(like.Mode&^unix.S_IFMT), 8)},
		{"uid", strconv.FormatUint(uint64(like.Uid), 10)},
		{"gid", strconv.FormatUint(uint64(like.Gid), 10)},
	} {
		if err := unix.FsconfigSetString(context, option[0], option[1]); err != nil {
			return -1, fmt.Errorf("tmpfs %s=%s: %w", option[0], option[1], err)
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("make tmpfs: %w", err)
	}
	fd, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("fsmount", err)
	}
	return fd, nil
}

// entry is what is in a directory: a symbolic link, or a copy of its mount and those below.
type entry struct {
	name string
	link string
	tree int // -1: a link
	dir  bool
}

func closeAll(entries []entry) {
	for _, e := range entries {
		if e.tree >= 0 {
			_ = unix.Close(e.tree)
		}
	}
}

// list returns the entries of a directory.
func list(dir int) ([]entry, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open its directory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "directory")
	defer file.Close()
	names, err := file.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read its directory: %w", err)
	}
	if len(names) > maxEntries {
		return nil, fmt.Errorf("its directory has more than %d entries, make it on the host: %w", maxEntries, errors.ErrUnsupported)
	}
	var entries []entry
	for _, name := range names {
		e, err := take(dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue // gone since
		}
		if err != nil {
			closeAll(entries)
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// take copies one entry.
func take(dir int, name string) (entry, error) {
	e := entry{name: name, tree: -1}
	// A file system whose server is gone must not be asked.
	const quietly = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC
	var st unix.Statx_t
	if err := unix.Statx(dir, name, quietly, unix.STATX_TYPE, &st); err != nil {
		return e, os.NewSyscallError("statx", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		var err error
		e.link, err = readLink(dir, name)
		return e, err
	}
	const flags = unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_RECURSIVE | unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	fd, err := unix.OpenTree(dir, name, flags)
	if err != nil {
		return e, lacking("open_tree", err)
	}
	e.tree, e.dir = fd, st.Mode&unix.S_IFMT == unix.S_IFDIR
	return e, nil
}

// put puts an entry into a directory.
func (e *entry) put(dir int) error {
	if e.tree < 0 {
		return os.NewSyscallError("symlinkat", unix.Symlinkat(e.link, dir, e.name))
	}
	at, err := makeElement(dir, e.name, e.dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return os.NewSyscallError("move_mount",
		unix.MoveMount(e.tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}
