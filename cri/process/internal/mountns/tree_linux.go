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

// tree is a copy of the source of a mount, which is mounted nowhere yet.
type tree struct {
	fd  int
	dir bool
}

// cloneAll copies the sources of all mounts. What it returns beside an error has to be closed as well.
func cloneAll(mounts []Mount) (trees []tree, err error) {
	for i := range mounts {
		t, err := clone(&mounts[i])
		if err != nil {
			return trees, failed(&mounts[i], err)
		}
		trees = append(trees, t)
	}
	return trees, nil
}

// clone copies the source of a mount.
func clone(m *Mount) (tree, error) {
	source, err := openSource(m.Source, m.MustExist)
	if err != nil {
		return tree{}, err
	}
	defer unix.Close(source)
	st, err := look(source)
	if err != nil {
		return tree{}, err
	}
	if err := mayPropagate(m.Propagation, st.Mnt_id); err != nil {
		return tree{}, err
	}
	fd, err := unix.OpenTree(source, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return tree{}, lacking("open_tree", err)
	}
	if err := m.shape(fd); err != nil {
		return tree{}, errors.Join(err, unix.Close(fd))
	}
	return tree{fd: fd, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// openSource opens what is to be mounted. A directory that is missing is made, as runtimes do for host paths, unless it
// must exist.
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

// mayPropagate reports an error where the mount that a source is on tells nobody what is mounted on it.
func mayPropagate(p Propagation, id uint64) error {
	if p == Private {
		return nil
	}
	table, err := mount.Table()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(table, func(m mount.Info) bool { return uint64(m.ID) == id })
	if i < 0 {
		return fmt.Errorf("source is on mount %d, which is not in the table", id)
	}
	isSlave := slices.ContainsFunc(table[i].Propagation, func(s string) bool { return strings.HasPrefix(s, "master:") })
	if table[i].Shared() || p == Slave && isSlave {
		return nil
	}
	return fmt.Errorf("propagation %s needs a source on a shared mount, and that at %s is not", p, table[i].Point)
}

// shape gives a copy its propagation and its attributes.
func (m *Mount) shape(fd int) error {
	all := unix.MountAttr{}
	switch m.Propagation {
	case Private:
		all.Propagation = unix.MS_PRIVATE
	case Slave:
		all.Propagation = unix.MS_SLAVE
	case Shared: // as its source is
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
	return lacking("mount_setattr", unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|flags, attr))
}

// lacking names a system call in its error, and the kernel that has it.
func lacking(call string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: Linux 5.12 is needed: %w", call, errors.ErrUnsupported)
	}
	return os.NewSyscallError(call, err)
}
