// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// currentNetns is the network namespace of the calling thread.
const currentNetns = "/proc/thread-self/ns/net"

// Do calls fn in the network namespace at path, on another goroutine, and returns the error of fn. Sockets that fn opens
// stay in that namespace. Goroutines that fn starts run in the namespace of the process.
func Do(path string, fn func() error) error {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &Error{Op: "enter", Path: path, Err: err}
	}
	defer unix.Close(target)
	return runOnThread(func() error {
		if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
			return &Error{Op: "enter", Path: path, Err: err}
		}
		return fn()
	})
}

// runOnThread calls fn on its own thread, which fn may move to another network namespace, and waits for it.
func runOnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine")
		defer func() { result <- err }()
		runtime.LockOSThread()
		home, openErr := unix.Open(currentNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			err = openErr
			return
		}
		defer unix.Close(home)
		defer func() {
			if unix.Setns(home, unix.CLONE_NEWNET) == nil { // otherwise the thread ends
				runtime.UnlockOSThread()
			}
		}()
		err = fn()
	}()
	return <-result
}

// createAndMount creates a network namespace and mounts it on the existing file at path.
func createAndMount(path string) error {
	return runOnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("raise loopback: %w", err)
		}
		if err := unix.Mount(currentNetns, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		return nil
	})
}

// raiseLoopback activates the interface lo in the network namespace of the current thread. The kernel then adds the
// addresses of lo.
func raiseLoopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(s, unix.SIOCGIFFLAGS, lo); err != nil {
		return err
	}
	lo.SetUint16(lo.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo)
}

// maxUnmounts is how many mounts on one file are removed. Normally there is one.
const maxUnmounts = 8

// unmount removes all mounts from the file at path. It is no error if nothing is mounted there.
func unmount(path string) error {
	for range maxUnmounts {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL): // not mounted, or not any more
			return nil
		case err != nil:
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
	return errors.New("still mounted after several unmounts")
}

// isMounted reports whether a network namespace is mounted on the file at path.
func isMounted(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// bindOverItself bind-mounts the directory at path onto itself, unless it is a mount point already. It also makes the mount
// shared.
func bindOverItself(path string) error {
	mounted, err := isMountPoint(path)
	if err != nil {
		return err
	}
	if !mounted {
		if err := unix.Mount(path, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind over itself: %w", err)
		}
	}
	if err := unix.Mount("", path, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make shared: %w", err)
	}
	return nil
}

// isMountPoint reports whether the directory at path is a mount point. A symbolic link is an error.
func isMountPoint(path string) (bool, error) {
	inner, err := mountID(path)
	if err != nil {
		return false, err
	}
	outer, err := mountID(path + "/..")
	return inner != outer, err
}

func mountID(path string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID|unix.STATX_TYPE, &st); err != nil {
		return 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return 0, fmt.Errorf("%s is a link", path)
	case st.Mask&unix.STATX_MNT_ID == 0:
		return 0, errors.New("the kernel reports no mount IDs: requires Linux 5.8")
	}
	return st.Mnt_id, nil
}
