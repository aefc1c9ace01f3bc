// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mount"
)

// findLoop returns the loop device attached to a file, or "" if there is none.
func findLoop(image string) (string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is no longer attached
		}
		if strings.TrimSpace(string(text)) == image {
			return loopNode(strings.TrimPrefix(strings.Split(file, "/")[3], "loop"), filepath.Dir(filepath.Dir(image)))
		}
	}
	return "", nil
}

// loopNode returns the device file of a loop device. If devtmpfs does not create it, it is created in dir.
func loopNode(number, dir string) (string, error) {
	path := "/dev/loop" + number
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	var minor int
	if _, err := fmt.Sscan(number, &minor); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "loop"+number)
	err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(minor))))
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return path, err
}

// attachLoop returns the loop device of a file, and attaches one if there is none.
func attachLoop(image, dir string) (string, error) {
	loop, err := findLoop(image)
	if loop != "" || err != nil {
		return loop, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer control.Close()
	file, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	for range 10 { // another process may be faster
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", fmt.Errorf("find a loop device: %w", err)
		}
		loop, err := loopNode(fmt.Sprint(number), dir)
		if err != nil {
			return "", err
		}
		err = configure(loop, file, image)
		if err == nil {
			return loop, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return "", fmt.Errorf("attach %s to %s: %w", image, loop, err)
		}
	}
	return "", errors.New("all loop devices are taken as soon as they are free")
}

func configure(loop string, file *os.File, image string) error {
	device, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(file.Fd())); err != nil {
		return err
	}
	info := unix.LoopInfo64{}
	copy(info.File_name[:len(info.File_name)-1], image)
	return unix.IoctlLoopSetStatus64(int(device.Fd()), &info)
}

// detachLoop detaches a loop device. It fails while the device is in use.
func detachLoop(loop string) error {
	device, err := os.OpenFile(loop, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		return err // something is mounted from it
	}
	defer device.Close()
	err = unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}

// releaseLoop detaches the loop device of a file, unless it is in use.
func releaseLoop(image string) error {
	loop, err := findLoop(image)
	if loop == "" || err != nil {
		return err
	}
	if err := detachLoop(loop); !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

// growLoop extends the loop device of a file, and the file system on it, to the size of the file.
func growLoop(ctx context.Context, image string, filesystem bool) error {
	loop, err := findLoop(image)
	if err != nil || loop == "" {
		return errors.Join(err, errors.New("the volume is not attached"))
	}
	device, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("let %s grow: %w", loop, err)
	}
	if !filesystem {
		return nil
	}
	return runTool(ctx, "resize2fs", loop)
}

// runTool runs a program of e2fsprogs.
func runTool(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if cmd.Err != nil { // the lookup in PATH happens before Env is set
		cmd = exec.CommandContext(ctx, "/usr/sbin/"+name, args...)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %.512s", name, err, out)
	}
	return nil
}

// mountImage mounts the file system in a file, and creates the file system if there is none.
func mountImage(ctx context.Context, image, dir, target string, flags []string) error {
	if isMounted(target) {
		return nil
	}
	loop, err := attachLoop(image, dir)
	if err != nil {
		return err
	}
	if formatted, err := isExt4(loop); err != nil {
		return err
	} else if !formatted {
		if err := runTool(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", loop); err != nil {
			return err
		}
	}
	var bits uintptr
	var data []string
	known := map[string]uintptr{"ro": unix.MS_RDONLY, "noatime": unix.MS_NOATIME, "nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC}
	for _, flag := range flags {
		if bit, ok := known[flag]; ok {
			bits |= bit
		} else if !slices.Contains(data, flag) {
			data = append(data, flag)
		}
	}
	if err := unix.Mount(loop, target, "ext4", bits, strings.Join(data, ",")); err != nil {
		return fmt.Errorf("mount %s on %s: %w", loop, target, err)
	}
	return clearWithMount(loop)
}

// clearWithMount makes the kernel detach a loop device when its mount is removed.
func clearWithMount(loop string) error {
	device, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil {
		return err
	}
	info.Flags |= unix.LO_FLAGS_AUTOCLEAR
	return unix.IoctlLoopSetStatus64(int(device.Fd()), info)
}

// isExt4 reports whether a device has an ext4 file system.
func isExt4(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var magic [2]byte
	if _, err := f.ReadAt(magic[:], 0x438); err != nil {
		return false, err
	}
	return magic == [2]byte{0x53, 0xef}, nil
}

// isMounted reports whether there is a mount at a path.
func isMounted(path string) bool {
	is, err := mount.IsMountPoint(path)
	return is && err == nil
}

// bindMount bind-mounts a directory at another path.
func bindMount(source, target string, readOnly bool) error {
	if isMounted(target) {
		return nil
	}
	if err := os.Mkdir(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var o mount.BindOptions
	if readOnly {
		o.Attrs = mount.ReadOnly
	}
	return mount.Bind(source, target, o)
}

// unmountPath unmounts the mount at a path, if there is one.
func unmountPath(path string) error {
	for isMounted(path) {
		if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	return nil
}
