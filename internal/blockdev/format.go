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

// partitions is the format of a device that is no file system, and must not become one.
const partitions = "unknown data, probably partitions"

// noFormat is the exit code of blkid for a device on which it finds nothing.
const noFormat = 2

// Probe returns the format of a block device, such as "ext4", or "" for one that is empty.
func Probe(ctx context.Context, device string) (format string, err error) {
	if is, err := IsDevice(device); err != nil || !is { // for which blkid has the same code as for an empty one
		return "", errors.Join(err, fmt.Errorf("%s is no block device", device))
	}
	output, code, err := run(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", device)
	switch {
	case err != nil:
		return "", fmt.Errorf("blkid %s: %w", device, err)
	case code == noFormat:
		return "", nil
	case code != 0:
		return "", failed("blkid", device, output, code)
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

// isType reports whether a name can be that of a file system, for which there is a program mkfs.NAME.
func isType(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Format makes a file system on a device that has no format, and repairs one that is there, as far as that needs nobody to decide. Nothing
// is written to a device that is to be read only. A device of another format is left alone, and is for mount to refuse.
func Format(ctx context.Context, device, fstype string, readOnly bool) error {
	if !isType(fstype) {
		return fmt.Errorf("%.64q is no type of a file system", fstype)
	}
	format, err := Probe(ctx, device)
	switch {
	case err != nil:
		return err
	case readOnly && format == "":
		return fmt.Errorf("device %s has no file system, and is to be read only", device)
	case readOnly:
		return nil
	case format == "":
		return mkfs(ctx, device, fstype)
	default:
		return check(ctx, device)
	}
}

func mkfs(ctx context.Context, device, fstype string) error {
	var args []string
	switch fstype {
	case "ext3", "ext4":
		args = []string{"-F", "-m0"} // without a question, and without blocks for root alone
	case "xfs":
		args = []string{"-f"}
	}
	output, code, err := run(ctx, "mkfs."+fstype, append(args, device)...)
	switch {
	case err != nil:
		return fmt.Errorf("mkfs.%s %s: %w", fstype, device, err)
	case code != 0:
		return failed("mkfs."+fstype, device, output, code)
	}
	return nil
}

// uncorrected is the exit code of fsck for a file system that it cannot repair. A higher one says that it did not run.
const uncorrected = 4

func check(ctx context.Context, device string) error {
	output, code, err := run(ctx, "fsck", "-a", device)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil // as the kubelet does
	case err != nil:
		return fmt.Errorf("fsck %s: %w", device, err)
	case code == uncorrected:
		return failed("fsck", device, output, code)
	}
	return nil
}

// Grow lets the file system of a device fill it, while it is mounted on a directory. One that fills it already is success, and so is a
// device without a format.
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
	output, code, err := run(ctx, name, args...)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", name, device, err)
	case code != 0:
		return failed(name, device, output, code)
	}
	return nil
}
