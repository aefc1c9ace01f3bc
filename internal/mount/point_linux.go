// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mount

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func isMountPoint(path string) (bool, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	if path == "/" {
		return true, nil
	}
	parent, name := filepath.Split(path)
	dir, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(dir)
	mounted, err := crossesMount(dir, name)
	if isUnsupported(err) {
		return isListed(dir, name)
	}
	return mounted, err
}

// crossesMount reports whether the file called name in the open directory dir is a mount point.
func crossesMount(dir int, name string) (bool, error) {
	// RESOLVE_NO_XDEV (Linux 5.6) does not access the mounted file system. statx would block if the file server hangs.
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(dir, name, &how)
	if errors.Is(err, unix.EXDEV) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, unix.Close(fd)
}

// isListed reports whether the mount table lists the file as a mount point, which is slow with many mounts.
func isListed(dir int, name string) (bool, error) {
	parent, err := os.Readlink(fdPath(dir))
	if err != nil {
		return false, err
	}
	path := filepath.Join(parent, name)
	table, err := ReadTable()
	if err != nil {
		return false, err
	}
	for i := range table {
		if table[i].Point == path {
			return true, nil
		}
	}
	var st unix.Stat_t
	return false, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
}

func makeShared(dir string) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	path, err := os.Readlink(fdPath(fd))
	_ = unix.Close(fd)
	if err != nil {
		return err
	}
	table, err := ReadTable()
	if err != nil {
		return err
	}
	on, ok := mountOf(table, path)
	switch {
	case ok && on.IsShared():
		return nil
	case !ok || on.Point != path:
		if err := bindPath(path, path, BindOptions{Recursive: true}); err != nil {
			return err
		}
	}
	return unix.Mount("", path, "", unix.MS_SHARED|unix.MS_REC, "")
}

// mountOf returns the mount in table that contains path: the last one with the longest mount point.
func mountOf(table []Info, path string) (on Info, ok bool) {
	for i := range table {
		if isWithin(path, table[i].Point) && (!ok || len(table[i].Point) >= len(on.Point)) {
			on, ok = table[i], true
		}
	}
	return on, ok
}
