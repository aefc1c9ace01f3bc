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

// Resolve returns the path of the block device that path refers to through symbolic links.
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

// IsDevice reports whether path is a block device. It follows symbolic links.
func IsDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0, nil
}

// Same reports whether two paths are the same block device.
func Same(a, b string) (bool, error) { return isSameDevice(a, b) }

// Size returns the size of a block device in bytes.
func Size(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	return uint64(max(n, 0)), err
}

// Hold keeps a block device open until Release, also after the agent has exited, by attaching a loop device to it. It does
// nothing if there is one.
func Hold(ctx context.Context, path string) error { return attachLoop(ctx, path) }

// Release undoes Hold. It does nothing for a device without a loop device.
func Release(ctx context.Context, path string) error { return detachLoop(ctx, path) }

// Limits of the program output that is kept, and of its part in an error, in bytes.
const (
	maxOutput = 64 << 10
	maxText   = 1 << 10
)

// runProgram runs a program and returns its output and exit code. err is not nil only if the program did not exit by itself.
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

// exitError returns an error with the exit code and the end of the output of a program.
func exitError(name, device, output string, code int) error {
	if len(output) > maxText {
		output = "…" + output[len(output)-maxText:]
	}
	return fmt.Errorf("%s %s: exit code %d: %q", name, device, code, output)
}
