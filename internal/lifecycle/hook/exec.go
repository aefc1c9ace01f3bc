// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxOutput is the maximum number of bytes of command output in an error.
const MaxOutput = 1024

// ExitError is the error of a handler whose command exited with a non-zero code.
type ExitError struct {
	Command []string
	Code    int
	Stderr  string // first MaxOutput bytes
}

// Error returns the kubelet's error text, with command, exit code and standard error.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Command, " "), e.Code, e.Stderr)
}

// runCommand runs a command in the container without expanding $(NAME). If it fails, output is the start of its output.
func (r *Runner) runCommand(ctx context.Context, call Call, command []string) (output string, err error) {
	if r.opts.Execer == nil {
		return "", errors.New("commands cannot be run here")
	}
	if len(command) == 0 {
		return "", errors.New("field command: is empty")
	}
	res, err := r.opts.Execer.ExecSync(ctx, call.ContainerID, slices.Clone(command), 0)
	if err == nil && res.ExitCode == 0 {
		return "", nil
	}
	if err == nil {
		err = &ExitError{Command: slices.Clone(command), Code: res.ExitCode, Stderr: firstText(res.Stderr)}
	}
	return firstText(slices.Concat(firstBytes(res.Stdout), firstBytes(res.Stderr))), err
}

func firstBytes(b []byte) []byte { return b[:min(len(b), MaxOutput)] }

// firstText returns the first MaxOutput bytes of b. It replaces invalid UTF-8, because a pod status must not contain it.
func firstText(b []byte) string { return strings.ToValidUTF8(string(firstBytes(b)), "\uFFFD") }
