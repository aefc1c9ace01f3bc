// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mountns

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Enter moves the calling thread to a mount namespace with these mounts. A target comes after those above it, whatever
// the order is. scratch is a directory of the caller, which is only looked at. The working directory is "/" afterwards.
// After an error the thread is of no more use.
func Enter(mounts []Mount, scratch string) error {
	mounts = slices.Clone(mounts)
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(depth(a.Target), depth(b.Target)) })
	// On the host, because a copy of a mount in another namespace is not the host's any more.
	trees, err := cloneAll(mounts)
	defer func() {
		for _, t := range trees {
			_ = unix.Close(t.fd)
		}
	}()
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mount namespace: %w", err)
	}
	// What the host unmounts must go from here too, or it is kept alive.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the host's: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("leave working directory: %w", err)
	}
	s := &space{scratch: scratch, mine: make(map[uint64]*Mount), copies: make(map[device]bool)}
	// Before anything is mounted: what is copied must hold no mount of the container.
	for i := range mounts {
		if err := s.prepare(mounts, i, trees[i].dir); err != nil {
			return failed(&mounts[i], err)
		}
	}
	for i := range mounts {
		if err := s.attach(&mounts[i], trees[i]); err != nil {
			return failed(&mounts[i], err)
		}
	}
	return nil
}

func depth(path string) int { return strings.Count(path, "/") }

// failed names a mount in an error.
func failed(m *Mount, err error) error {
	return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
}

// space is the namespace while it is furnished.
type space struct {
	scratch string
	mine    map[uint64]*Mount // mounts of the container by mount ID
	copies  map[device]bool   // file systems with the copy of a directory
}

// prepare makes the mount point of a mount that is in no other one.
func (s *space) prepare(mounts []Mount, i int, dir bool) error {
	for j := range i {
		if strings.HasPrefix(mounts[i].Target, mounts[j].Target+"/") {
			return nil
		}
	}
	p, err := s.walk(mounts[i].Target)
	if err != nil {
		return err
	}
	defer p.close()
	return s.make(p, dir)
}

// attach mounts a tree.
func (s *space) attach(m *Mount, t tree) error {
	p, err := s.walk(m.Target)
	if err != nil {
		return err
	}
	defer p.close()
	if p.inside != nil && p.inside.Propagation == Shared {
		return fmt.Errorf("it is in the mount at %s, whose propagation would show it to the host: %w", p.inside.Target, errors.ErrUnsupported)
	}
	if err := s.make(p, t.dir); err != nil {
		return err
	}
	st, err := look(p.fd)
	if err != nil {
		return err
	}
	if t.dir != (st.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return fmt.Errorf("mount point is %s, source is %s", kind(!t.dir), kind(t.dir))
	}
	if err := unix.MoveMount(t.fd, "", p.fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move mount: %w", err)
	}
	if st, err = look(t.fd); err != nil {
		return err
	}
	s.mine[st.Mnt_id] = m
	return nil
}

func kind(dir bool) string {
	if dir {
		return "a directory"
	}
	return "a file"
}

// look returns type, device and mount of what is open.
func look(fd int) (st unix.Statx_t, err error) {
	const want = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_UID | unix.STATX_GID | unix.STATX_INO | unix.STATX_MNT_ID
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, want, &st)
	if err != nil {
		return st, fmt.Errorf("statx: %w", err)
	}
	if st.Mask&unix.STATX_MNT_ID == 0 {
		return st, fmt.Errorf("statx tells no mounts apart, Linux 5.12 is needed: %w", errors.ErrUnsupported)
	}
	return st, nil
}
