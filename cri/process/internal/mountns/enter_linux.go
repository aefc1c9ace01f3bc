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

// Enter moves the calling thread to a new mount namespace with the mounts of the host and the given bind mounts, in any
// order. The working directory becomes "/". Enter mounts temporarily on scratch, a directory of the caller. After an error
// the thread must not be used.
func Enter(mounts []Mount, scratch string) error {
	mounts = slices.Clone(mounts)
	// A directory is mounted before the directories below it.
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(pathDepth(a.Target), pathDepth(b.Target)) })
	// On the host, because a bind mount from another namespace would be a copy.
	trees, err := cloneSources(mounts)
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
	// Unmounts on the host must propagate to here, or the mounts stay in use.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make mounts slaves of the host's: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("leave working directory: %w", err)
	}
	s := &namespaceBuilder{scratch: scratch, containerMounts: make(map[uint64]*Mount), copies: make(map[device]bool)}
	// Before the first mount: a replaced directory must contain no mount of the container.
	for i := range mounts {
		if err := s.prepareMountPoint(mounts, i, trees[i].dir); err != nil {
			return wrapMountError(&mounts[i], err)
		}
	}
	for i := range mounts {
		if err := s.attachMount(&mounts[i], trees[i]); err != nil {
			return wrapMountError(&mounts[i], err)
		}
	}
	return nil
}

func pathDepth(path string) int { return strings.Count(path, "/") }

// wrapMountError adds the source and the target of mnt to err.
func wrapMountError(mnt *Mount, err error) error {
	return fmt.Errorf("mount %s at %s: %w", mnt.Source, mnt.Target, err)
}

// namespaceBuilder is the state of a namespace whose mounts are being created.
type namespaceBuilder struct {
	scratch         string
	containerMounts map[uint64]*Mount // mounts of the container, by mount ID
	copies          map[device]bool   // devices of the tmpfs copies of directories
}

// prepareMountPoint creates the target of a mount, a directory or file, in the host's directories if it is missing.
func (s *namespaceBuilder) prepareMountPoint(mounts []Mount, i int, dir bool) error {
	for j := range i {
		if strings.HasPrefix(mounts[i].Target, mounts[j].Target+"/") {
			// attachMount creates it inside the earlier mount
			return nil
		}
	}
	p, err := s.resolvePath(mounts[i].Target)
	if err != nil {
		return err
	}
	defer p.closeFD()
	return s.createMissing(p, dir)
}

// attachMount attaches the cloned source of a mount to the target of the mount. It creates the target if it is missing.
func (s *namespaceBuilder) attachMount(mnt *Mount, source clonedTree) error {
	p, err := s.resolvePath(mnt.Target)
	if err != nil {
		return err
	}
	defer p.closeFD()
	if p.inside != nil && p.inside.Propagation == Shared {
		return fmt.Errorf("it is in the mount at %s, whose propagation would show it to the host: %w", p.inside.Target, errors.ErrUnsupported)
	}
	if err := s.createMissing(p, source.dir); err != nil {
		return err
	}
	st, err := statMount(p.fd)
	if err != nil {
		return err
	}
	if source.dir != (st.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return fmt.Errorf("mount point is %s, source is %s", fileKind(!source.dir), fileKind(source.dir))
	}
	if err := unix.MoveMount(source.fd, "", p.fd, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move mount: %w", err)
	}
	if st, err = statMount(source.fd); err != nil {
		return err
	}
	s.containerMounts[st.Mnt_id] = mnt
	return nil
}

func fileKind(dir bool) string {
	if dir {
		return "a directory"
	}
	return "a file"
}

// statMount returns the type, owner, device and mount ID of the file with descriptor fd.
func statMount(fd int) (st unix.Statx_t, err error) {
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
