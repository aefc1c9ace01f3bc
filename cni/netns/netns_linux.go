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

// own is the network namespace of the calling thread.
const own = "/proc/thread-self/ns/net"

// Do calls f in the network namespace at a path and returns its error. Sockets that f opens are of that namespace, and
// stay so; goroutines that it starts are not in it. f runs on a goroutine of its own.
func Do(path string, f func() error) error {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &Error{Op: "enter", Path: path, Err: err}
	}
	defer unix.Close(target)
	return onThread(func() error {
		if err := unix.Setns(target, unix.CLONE_NEWNET); err != nil {
			return &Error{Op: "enter", Path: path, Err: err}
		}
		return f()
	})
}

// onThread calls f on a thread that may change its network namespace, and waits for it. The thread goes back to where it
// came from, or ends if it cannot.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := errors.New("the function ended its goroutine")
		defer func() { result <- err }()
		runtime.LockOSThread()
		home, openErr := unix.Open(own, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			err = openErr
			return
		}
		defer unix.Close(home)
		defer func() {
			if unix.Setns(home, unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = f()
	}()
	return <-result
}

// pin makes a namespace and mounts it on a file.
func pin(path string) error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("raise loopback: %w", err)
		}
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount: %w", err)
		}
		return nil
	})
}

// raiseLoopback brings the interface lo of the thread's namespace up; the kernel gives it its addresses.
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

// maxStacked is how many mounts on one file are removed. There is one.
const maxStacked = 8

// unpin removes the mount from a file. What is not mounted is success.
func unpin(path string) error {
	for range maxStacked {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EINVAL): // not mounted, or not any more
			return nil
		case err != nil:
			return &os.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
	return errors.New("something keeps being mounted there")
}

// pinned reports whether a namespace is mounted on a file.
func pinned(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.NSFS_MAGIC
}

// bindOverItself makes a directory a shared mount of its own.
func bindOverItself(path string) error {
	mounted, err := mountPoint(path)
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

// mountPoint reports whether a directory is a mount. A link is refused.
func mountPoint(path string) (bool, error) {
	inner, err := mountOf(path)
	if err != nil {
		return false, err
	}
	outer, err := mountOf(path + "/..")
	return inner != outer, err
}

func mountOf(path string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID|unix.STATX_TYPE, &st); err != nil {
		return 0, &os.PathError{Op: "statx", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return 0, fmt.Errorf("%s is a link", path)
	case st.Mask&unix.STATX_MNT_ID == 0:
		return 0, errors.New("the kernel does not tell mounts apart: Linux 5.8 or later is needed")
	}
	return st.Mnt_id, nil
}
