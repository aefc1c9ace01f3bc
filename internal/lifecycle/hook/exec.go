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

// MaxOutput is how many bytes of the output of a command an error keeps.
const MaxOutput = 1024

// ExitError says that the command of a handler ran and ended with another code than zero.
type ExitError struct {
	Command []string
	Code    int
	Stderr  string // its beginning
}

// Error returns the kubelet's text, with the command, the code and what the command wrote to its standard error.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.Command, " "), e.Code, e.Stderr)
}

// exec runs a command, as it is written, in the container. With an error, it also returns what the command wrote,
// standard output before standard error.
func (r *Runner) exec(ctx context.Context, c Call, command []string) (output string, err error) {
	if r.opts.Execer == nil {
		return "", errors.New("commands cannot be run here")
	}
	if len(command) == 0 {
		return "", errors.New("field command: is empty")
	}
	res, err := r.opts.Execer.ExecSync(ctx, c.ContainerID, slices.Clone(command), 0)
	if err == nil && res.ExitCode == 0 {
		return "", nil
	}
	if err == nil {
		err = &ExitError{Command: slices.Clone(command), Code: res.ExitCode, Stderr: beginning(res.Stderr)}
	}
	return beginning(slices.Concat(head(res.Stdout), head(res.Stderr))), err
}

func head(b []byte) []byte { return b[:min(len(b), MaxOutput)] }

// beginning returns the first bytes as text: a status has to be valid UTF-8, and output need not be.
func beginning(b []byte) string { return strings.ToValidUTF8(string(head(b)), "\uFFFD") }
