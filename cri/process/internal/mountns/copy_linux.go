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

// Limits of a directory that a tmpfs replaces: its entries, each of which becomes a mount, and the memory for files that the
// container adds.
const (
	maxEntries = 1000
	copySize   = "64m"
)

// device identifies a file system.
type device struct{ major, minor uint32 }

// writableCopy replaces a directory by a copy in which files can be created without changing the host, and returns its
// descriptor.
func (s *namespaceBuilder) writableCopy(dir int) (int, error) {
	st, err := statMount(dir)
	if err != nil {
		return -1, err
	}
	if s.copies[device{st.Dev_major, st.Dev_minor}] {
		return unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	}
	entries, err := cloneEntries(dir)
	if err != nil {
		return -1, err
	}
	defer closeAll(entries)
	// a tmpfs that is mounted over the directory, with its entries mounted into it
	own, err := newTmpfs(st)
	if err != nil {
		return -1, err
	}
	if err := s.replaceDirectory(dir, st, own, entries); err != nil {
		return -1, errors.Join(err, unix.Close(own))
	}
	if st, err = statMount(own); err != nil {
		return -1, errors.Join(err, unix.Close(own))
	}
	s.copies[device{st.Dev_major, st.Dev_minor}] = true
	return own, nil
}

// replaceDirectory mounts tmpfs over the directory, and then the clones of the directory's entries into tmpfs.
func (s *namespaceBuilder) replaceDirectory(dir int, dirStatus unix.Statx_t, tmpfs int, entries []clonedEntry) error {
	var root unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_INO|unix.STATX_MNT_ID, &root); err != nil {
		return os.NewSyscallError("statx", err)
	}
	isRoot := root.Mnt_id == dirStatus.Mnt_id && root.Ino == dirStatus.Ino
	at := dir
	if isRoot { // nothing can be mounted over the root
		var err error
		if at, err = unix.Open(s.scratch, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
			return &os.PathError{Op: "open", Path: s.scratch, Err: err}
		}
		defer unix.Close(at)
	}
	// Before Linux 6.15, nothing can be mounted on a detached mount.
	if err := unix.MoveMount(tmpfs, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return os.NewSyscallError("move_mount", err)
	}
	for i := range entries {
		if err := entries[i].mountInto(tmpfs); err != nil {
			return fmt.Errorf("entry %q: %w", entries[i].name, err)
		}
	}
	if !isRoot {
		return nil
	}
	return changeRoot(tmpfs) // tmpfs is the new root
}

// changeRoot makes a mount the root directory of the mount namespace and of this thread. root is a descriptor of the mount.
func changeRoot(root int) error {
	if err := unix.Fchdir(root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	// The old root is now mounted over the new one, and the working directory is in it.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount2", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// newTmpfs creates a tmpfs that is not yet mounted, and returns its descriptor. Its root directory has the mode and the owner in
// dirStatus.
func newTmpfs(dirStatus unix.Statx_t) (int, error) {
	context, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, wrapUnsupported("fsopen", err)
	}
	defer unix.Close(context)
	for _, option := range [][2]string{
		{"source", "tmpfs"},
		{"size", copySize},
		{"mode", strconv.FormatUint(uint64(dirStatus.Mode&^unix.S_IFMT), 8)},
		{"uid", strconv.FormatUint(uint64(dirStatus.Uid), 10)},
		{"gid", strconv.FormatUint(uint64(dirStatus.Gid), 10)},
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

// clonedEntry is an entry of a directory: the target of a symbolic link, or a clone of a file or directory, with the mounts below
// it, that is not yet attached.
type clonedEntry struct {
	name string
	link string
	tree int // -1: a symbolic link
	dir  bool
}

func closeAll(entries []clonedEntry) {
	for _, e := range entries {
		if e.tree >= 0 {
			_ = unix.Close(e.tree)
		}
	}
}

// cloneEntries returns a clone of each entry of the directory with the descriptor dir. It returns an error if there are more
// than maxEntries entries.
func cloneEntries(dir int) ([]clonedEntry, error) {
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
	var entries []clonedEntry
	for _, name := range names {
		e, err := cloneEntry(dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue // removed meanwhile
		}
		if err != nil {
			closeAll(entries)
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// cloneEntry clones an entry of a directory: a symbolic link as its target, and a file or directory as a detached mount.
func cloneEntry(dir int, name string) (clonedEntry, error) {
	e := clonedEntry{name: name, tree: -1}
	// AT_STATX_DONT_SYNC avoids a hang on a network file system whose server is down.
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
		return e, wrapUnsupported("open_tree", err)
	}
	e.tree, e.dir = fd, st.Mode&unix.S_IFMT == unix.S_IFDIR
	return e, nil
}

// mountInto creates the entry in the directory dir, and mounts the clone there.
func (e *clonedEntry) mountInto(dir int) error {
	if e.tree < 0 {
		return os.NewSyscallError("symlinkat", unix.Symlinkat(e.link, dir, e.name))
	}
	at, err := createElement(dir, e.name, e.dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return os.NewSyscallError("move_mount",
		unix.MoveMount(e.tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}
