// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mountns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// clonedTree is a clone of the source of a mount, with all mounts below it, that is not yet attached to a directory.
type clonedTree struct {
	fd  int
	dir bool
}

// cloneSources clones the source of each mount, in the order of mounts. The caller closes the returned clones, also after an
// error.
func cloneSources(mounts []Mount) (trees []clonedTree, err error) {
	for i := range mounts {
		t, err := cloneSource(&mounts[i])
		if err != nil {
			return trees, wrapMountError(&mounts[i], err)
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// cloneSource clones the source of a mount, with all mounts below it and the requested attributes, as a detached mount.
func cloneSource(mnt *Mount) (clonedTree, error) {
	source, err := openSource(mnt.Source, mnt.MustExist)
	if err != nil {
		return clonedTree{}, err
	}
	defer unix.Close(source)
	st, err := statMount(source)
	if err != nil {
		return clonedTree{}, err
	}
	if err := checkPropagation(mnt.Propagation, st.Mnt_id); err != nil {
		return clonedTree{}, err
	}
	fd, err := unix.OpenTree(source, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return clonedTree{}, wrapUnsupported("open_tree", err)
	}
	if err := mnt.setAttributes(fd); err != nil {
		return clonedTree{}, errors.Join(err, unix.Close(fd))
	}
	return clonedTree{fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// openSource opens the source of a mount. Unless it must exist, a missing source becomes a directory, as in other runtimes.
func openSource(path string, mustExist bool) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) && !mustExist {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return -1, fmt.Errorf("make source: %w", err)
		}
		fd, err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, fmt.Errorf("open source: %w", err)
	}
	return fd, nil
}

// checkPropagation returns an error if the source of a mount, on the host mount with this ID, cannot have this propagation.
func checkPropagation(propagation Propagation, mountID uint64) error {
	if propagation == Private {
		return nil
	}
	table, err := mount.ReadTable()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(table, func(m mount.Info) bool { return uint64(m.ID) == mountID })
	if i < 0 {
		return fmt.Errorf("source is on mount %d, which is not in the table", mountID)
	}
	isSlave := slices.ContainsFunc(table[i].Propagation, func(s string) bool { return strings.HasPrefix(s, "master:") })
	if table[i].IsShared() || propagation == Slave && isSlave {
		return nil
	}
	return fmt.Errorf("propagation %s needs a source on a shared mount, and that at %s is not", propagation, table[i].Point)
}

// setAttributes sets the propagation and the attributes of m, such as read-only, on the cloned source with descriptor fd.
func (m *Mount) setAttributes(fd int) error {
	all := unix.MountAttr{}
	switch m.Propagation {
	case Private:
		all.Propagation = unix.MS_PRIVATE
	case Slave:
		all.Propagation = unix.MS_SLAVE
	case Shared: // the propagation of its source
	}
	top := unix.MountAttr{}
	switch {
	case m.ReadOnly && m.Recursive:
		all.Attr_set |= unix.MOUNT_ATTR_RDONLY
	case m.ReadOnly:
		top.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	for _, a := range []struct {
		set  bool
		attr uint64
	}{{m.NoExec, unix.MOUNT_ATTR_NOEXEC}, {m.NoDev, unix.MOUNT_ATTR_NODEV}, {m.NoSuid, unix.MOUNT_ATTR_NOSUID}} {
		if a.set {
			top.Attr_set |= a.attr
		}
	}
	if err := setAttr(fd, unix.AT_RECURSIVE, &all); err != nil {
		return err
	}
	return setAttr(fd, 0, &top)
}

func setAttr(fd int, flags uint, attr *unix.MountAttr) error {
	if attr.Attr_set == 0 && attr.Propagation == 0 {
		return nil
	}
	return wrapUnsupported("mount_setattr", unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, attr))
}

// wrapUnsupported adds the name of the system call to err. If the kernel lacks the call, the error names the kernel version that
// has it.
func wrapUnsupported(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: Linux 5.12 is needed: %w", call, errors.ErrUnsupported)
	}
	return os.NewSyscallError(call, err)
}
