// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package blockdev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seed81659283/nodeagent/internal/plugincmd"
)

// Resolve follows the symbolic links of path and returns the path of the block device to which they lead. A file of another
// type is an error.
func Resolve(path string) (string, error) {
	device, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	is, err := IsDevice(device)
	if err == nil && !is {
		err = fmt.Errorf("%s is not a block device", path)
	}
	return device, err
}

// IsDevice reports whether path is a block device or a symbolic link to one.
func IsDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0, nil
}

// Same reports whether the paths a and b refer to the same block device.
func Same(a, b string) (bool, error) { return isSameDevice(a, b) }

// Size returns the size of the block device at path in bytes.
func Size(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	return uint64(max(n, 0)), err
}

// Hold attaches a loop device to the block device at path, if none is attached yet. The loop device keeps the block device
// open until [Release] is called, even if the agent exits.
func Hold(ctx context.Context, path string) error { return attachLoop(ctx, path) }

// Release detaches the loop device that [Hold] has attached to the block device at path. If no loop device is attached, it
// does nothing.
func Release(ctx context.Context, path string) error { return detachLoop(ctx, path) }

// Limits of the program output that is kept, and of its part in an error, in bytes.
const (
	maxOutput = 64 << 10
	maxText   = 1 << 10
)

// runProgram runs a program. It returns its output and exit code; err is nil even if the code is not zero.
func runProgram(ctx context.Context, name string, args ...string) (output string, code int, err error) {
	out := &plugincmd.Output{Max: maxOutput, Drop: true}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	err = plugincmd.Run(cmd, false)
	output = strings.TrimSpace(string(out.Text))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && ctx.Err() == nil && exit.Exited() {
		return output, exit.ExitCode(), nil
	}
	return output, 0, err
}

// exitError returns the error for a program that exited with code, with the end of its output.
func exitError(name, device, output string, code int) error {
	if len(output) > maxText {
		output = "…" + output[len(output)-maxText:]
	}
	return fmt.Errorf("%s %s: exit code %d: %q", name, device, code, output)
}
