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

// Resolve returns the path of a block device that a path leads to, through links.
func Resolve(path string) (string, error) {
	device, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	is, err := IsDevice(device)
	if err == nil && !is {
		err = fmt.Errorf("%s is no block device", path)
	}
	return device, err
}

// IsDevice reports whether a path, through links, is a block device.
func IsDevice(path string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	return info.Mode()&os.ModeDevice != 0 && info.Mode()&os.ModeCharDevice == 0, nil
}

// Same reports whether two paths are the same block device.
func Same(a, b string) (bool, error) { return same(a, b) }

// Size returns how many bytes a block device has.
func Size(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.Seek(0, io.SeekEnd)
	return uint64(max(n, 0)), err
}

// Hold keeps a block device open until Release, also when the agent ends: a loop device is made on it, unless there is one.
func Hold(ctx context.Context, path string) error { return hold(ctx, path) }

// Release undoes Hold. A device that is not held is success.
func Release(ctx context.Context, path string) error { return release(ctx, path) }

// maxOutput is how much of the output of a program is kept, and maxText how much of it is in an error.
const (
	maxOutput = 64 << 10
	maxText   = 1 << 10
)

// run runs a program and returns its output and its exit code. Only what keeps it from running to its end is an error.
func run(ctx context.Context, name string, args ...string) (output string, code int, err error) {
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

// failed returns an error with the end of what a program has printed.
func failed(name, device, output string, code int) error {
	if len(output) > maxText {
		output = "…" + output[len(output)-maxText:]
	}
	return fmt.Errorf("%s %s: exit code %d: %q", name, device, code, output)
}
