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

// maxDepth is how many levels are open at a time, as each takes a descriptor. What a container has nested deeper is moved to
// the top of the tree, and removed from there.
const maxDepth = 100

// removeTree removes a directory.
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
	t := &tree{mount: mount, top: -1}
	return t.remove(parent, filepath.Base(path), path, 0)
}

// tree is a removal. What is of another mount is not of the tree.
type tree struct {
	mount uint64
	top   int // the directory that is removed; -1 until it is open
	moved int // how many directories were moved there
}

// remove removes an entry of a directory with all that is below it. path is its name for errors.
func (t *tree) remove(parent int, name, path string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	dir, openErr := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(openErr, unix.ENOENT):
		return nil
	case errors.Is(openErr, unix.ENOTDIR) || errors.Is(openErr, unix.ELOOP):
		return t.leaf(parent, name, path, err)
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
		return t.move(parent, name, path)
	}
	if err := t.empty(f, path, depth); err != nil {
		return err
	}
	if err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// move moves a directory to the top of the tree, which is read again as something in it was removed.
func (t *tree) move(parent int, name, path string) error {
	for {
		t.moved++
		err := unix.Renameat2(parent, name, t.top, fmt.Sprintf(".rmtree-%d", t.moved), unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST): // left by a removal that a mount stopped, or made by somebody else
		case err != nil:
			return &os.PathError{Op: "rename", Path: path, Err: err}
		default:
			return nil
		}
	}
}

// leaf returns why an entry that is no directory cannot be removed: a file may be mounted on it.
func (t *tree) leaf(parent int, name, path string, err error) error {
	if mount, statErr := mountOf(parent, name); statErr == nil && mount != t.mount {
		return &MountError{Path: path}
	}
	return &os.PathError{Op: "remove", Path: path, Err: err}
}

// empty removes what is in a directory, as far as that can be, and returns the first error.
func (t *tree) empty(dir *os.File, path string, depth int) error {
	var first error
	for {
		names, err := dir.Readdirnames(1000)
		removed := false
		for _, name := range names {
			if err := t.remove(int(dir.Fd()), name, filepath.Join(path, name), depth+1); err == nil {
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
		case removed: // what was skipped, as the directory has changed, is read again
			if _, err := dir.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
	}
}

// mountOf returns the ID of the mount that a directory, or an entry of it, is on.
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
