// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// maxTries is the maximum number of attempts to attach a loop device. An attempt fails if another program takes the free loop
// device first.
const maxTries = 16

func isSameDevice(a, b string) (bool, error) {
	var at, bt unix.Stat_t
	if err := unix.Stat(a, &at); err != nil {
		return false, &fs.PathError{Op: "stat", Path: a, Err: err}
	}
	if err := unix.Stat(b, &bt); err != nil {
		return false, &fs.PathError{Op: "stat", Path: b, Err: err}
	}
	return at.Mode&unix.S_IFMT == unix.S_IFBLK && bt.Mode&unix.S_IFMT == unix.S_IFBLK && at.Rdev == bt.Rdev, nil
}

func attachLoop(ctx context.Context, path string) error {
	if loop, err := findLoop(path); err != nil || loop != "" {
		return err
	}
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		device, err = os.Open(path)
	}
	if err != nil {
		return err
	}
	defer device.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return fmt.Errorf("find a free loop device: %w", err)
		}
		err = configureLoop("/dev/loop"+strconv.Itoa(n), device, path)
		if !errors.Is(err, unix.EBUSY) { // another program was faster
			return err
		}
	}
	return errors.New("other programs take all free loop devices")
}

// configureLoop attaches the loop device at the path loop to the open block device.
func configureLoop(loop string, device *os.File, path string) error {
	f, err := os.OpenFile(loop, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	config := &unix.LoopConfig{Fd: uint32(device.Fd())}
	// The kernel stores this path only as information for users.
	copy(config.Info.File_name[:len(config.Info.File_name)-1], path)
	err = unix.IoctlLoopConfigure(int(f.Fd()), config)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) { // before Linux 5.8
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(device.Fd()))
	}
	if err != nil {
		return &fs.PathError{Op: "attach", Path: loop, Err: err}
	}
	return nil
}

func detachLoop(ctx context.Context, path string) error {
	for range maxTries { // usually one
		loop, err := findLoop(path)
		if err != nil || loop == "" {
			return err
		}
		f, err := os.OpenFile(loop, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return &fs.PathError{Op: "detach", Path: loop, Err: err}
		}
		select { // the kernel detaches it when the last process closes it, such as a program that inspects new devices
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s still has a loop device", path)
}

// findLoop returns the path of the loop device that is attached to the block device at path, or "".
func findLoop(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		data, err := plainfile.Read(file, 64<<10)
		if err == nil && strings.TrimSuffix(strings.TrimSpace(string(data)), " (deleted)") == target {
			return "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(file))), nil
		}
	}
	return "", nil
}
