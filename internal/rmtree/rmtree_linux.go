// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package rmtree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxDepth is the maximum number of directory levels that are open at a time, to limit descriptors. A deeper directory is moved
// to the top of the tree and removed there.
const maxDepth = 100

// removeTree implements [Remove] on Linux.
func removeTree(path string) error {
	path = filepath.Clean(path)
	parent, err := unix.Open(filepath.Dir(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(parent)
	mount, err := mountOf(parent, "")
	if err != nil {
		return &os.PathError{Op: "statx", Path: filepath.Dir(path), Err: err}
	}
	t := &removal{mount: mount, top: -1}
	return t.removeEntry(parent, filepath.Base(path), path, 0)
}

// removal is the state of one call of Remove. Entries on another mount than mount are kept.
type removal struct {
	mount uint64
	top   int // descriptor of the directory to remove; -1: not open yet
	moved int // number of directories moved to top
}

// removeEntry removes a file, or a directory with all files below it. path is the path of the entry, for errors. depth is the
// depth of the entry in the removed tree.
func (t *removal) removeEntry(parent int, name, path string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	dir, openErr := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(openErr, unix.ENOENT):
		return nil
	case errors.Is(openErr, unix.ENOTDIR) || errors.Is(openErr, unix.ELOOP):
		return t.leafError(parent, name, path, err)
	case openErr != nil:
		return &os.PathError{Op: "open", Path: path, Err: openErr}
	}
	f := os.NewFile(uintptr(dir), path)
	defer f.Close()
	mount, err := mountOf(dir, "")
	if err != nil {
		return &os.PathError{Op: "statx", Path: path, Err: err}
	}
	if mount != t.mount {
		return &MountError{Path: path}
	}
	switch {
	case t.top < 0:
		t.top = dir
	case depth > maxDepth:
		return t.moveToTop(parent, name, path)
	}
	if err := t.removeContents(f, path, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// moveToTop moves a directory to the top directory of the tree, so that a deep tree needs only few open directories.
func (t *removal) moveToTop(parent int, name, path string) error {
	for {
		t.moved++
		// The top directory is read again after its entries are removed.
		err := unix.Renameat2(parent, name, t.top, fmt.Sprintf(".rmtree-%d", t.moved), unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST): // left by a previous removal, or created by another program
		case err != nil:
			return &os.PathError{Op: "rename", Path: path, Err: err}
		default:
			return nil
		}
	}
}

// leafError returns the error for the failed removal of a file, a [*MountError] if it is a mount point.
func (t *removal) leafError(parent int, name, path string, err error) error {
	if mount, statErr := mountOf(parent, name); statErr == nil && mount != t.mount {
		return &MountError{Path: path}
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}

// removeContents removes all entries of dir, and returns the first error. path is the path of dir, for errors.
func (t *removal) removeContents(dir *os.File, path string, depth int) error {
	var first error
	for {
		names, err := dir.Readdirnames(1000)
		removed := false
		for _, name := range names {
			if err := t.removeEntry(int(dir.Fd()), name, filepath.Join(path, name), depth+1); err == nil {
				removed = true
			} else if first == nil {
				first = err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return first
		case err != nil:
			return err
		case removed: // entries may have been skipped because the directory has changed: read it again
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
	}
}

// mountOf returns the ID of the mount that contains a file in dir, or dir itself if name is empty.
func mountOf(dir int, name string) (uint64, error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	if err := unix.Statx(dir, name, flags, unix.STATX_MNT_ID, &st); err != nil {
		return 0, err
	}
	if st.Mask&unix.STATX_MNT_ID == 0 { // before Linux 5.8
		return unix.Mkdev(st.Dev_major, st.Dev_minor), nil
	}
	return st.Mnt_id, nil
}
