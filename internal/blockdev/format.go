// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// partitions is the format that [Probe] returns for a device with a partition table, which must not be formatted.
const partitions = "unknown data, probably partitions"

// blkidNothingFound is the exit code of blkid for an empty device.
const blkidNothingFound = 2

// Probe returns the type of the file system on device, such as "ext4", as blkid detects it, or "" for an empty device. For a
// device with a partition table it returns a text that is no file system type.
func Probe(ctx context.Context, device string) (format string, err error) {
	if is, err := IsDevice(device); err != nil || !is { // blkid has one exit code for an empty device and for another file
		return "", errors.Join(err, fmt.Errorf("%s is not a block device", device))
	}
	output, code, err := runProgram(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	switch {
	case err != nil:
		return "", fmt.Errorf("blkid %s: %w", device, err)
	case code == blkidNothingFound:
		return "", nil
	case code != 0:
		return "", exitError("blkid", device, output, code)
	}
	for line := range strings.Lines(output) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		switch {
		case !ok && key != "":
			return "", fmt.Errorf("blkid %s: unexpected output %.256q", device, output)
		case key == "PTTYPE":
			return partitions, nil
		case key == "TYPE":
			format = value
		}
	}
	return format, nil
}

// isType reports whether name has only lower-case letters and digits, as a file system type.
func isType(name string) bool {
	// Format makes it a part of the program name mkfs.NAME.
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Format creates a file system of type fstype on an empty device. It never replaces content: on a device with content it
// repairs the file system with fsck -a, even one of another type. With readOnly, Format writes nothing, and an empty device
// is an error.
func Format(ctx context.Context, device, fstype string, readOnly bool) error {
	if !isType(fstype) {
		return fmt.Errorf("%.64q is not a file system type", fstype)
	}
	format, err := Probe(ctx, device)
	switch {
	case err != nil:
		return err
	case readOnly && format == "":
		return fmt.Errorf("device %s has no file system, and is read-only", device)
	case readOnly:
		return nil
	case format == "":
		return makeFileSystem(ctx, device, fstype)
	default:
		return checkFileSystem(ctx, device)
	}
}

func makeFileSystem(ctx context.Context, device, fstype string) error {
	var args []string
	switch fstype {
	case "ext3", "ext4":
		args = []string{"-F", "-m0"} // without a question, and without blocks reserved for root
	case "xfs":
		args = []string{"-f"}
	}
	output, code, err := runProgram(ctx, "mkfs."+fstype, append(args, device)...)
	switch {
	case err != nil:
		return fmt.Errorf("mkfs.%s %s: %w", fstype, device, err)
	case code != 0:
		return exitError("mkfs."+fstype, device, output, code)
	}
	return nil
}

// fsckUncorrected is the exit code of fsck for errors that it cannot repair. A higher code means that fsck did not run.
const fsckUncorrected = 4

func checkFileSystem(ctx context.Context, device string) error {
	output, code, err := runProgram(ctx, "fsck", "-a", device)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil // ignored, as in the kubelet
	case err != nil:
		return fmt.Errorf("fsck %s: %w", device, err)
	case code == fsckUncorrected:
		return exitError("fsck", device, output, code)
	}
	return nil
}

// Grow extends the file system on device, which is mounted at dir, to the size of the device. It does nothing if the file
// system already has this size or the device is empty.
func Grow(ctx context.Context, device, dir string) error {
	format, err := Probe(ctx, device)
	if err != nil || format == "" {
		return err
	}
	var name string
	var args []string
	switch format {
	case "ext3", "ext4":
		name, args = "resize2fs", []string{device}
	case "xfs":
		name, args = "xfs_growfs", []string{"-d", dir}
	case "btrfs":
		name, args = "btrfs", []string{"filesystem", "resize", "max", dir}
	default:
		return fmt.Errorf("file system %s of %s cannot grow", format, device)
	}
	output, code, err := runProgram(ctx, name, args...)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", name, device, err)
	case code != 0:
		return exitError(name, device, output, code)
	}
	return nil
}
