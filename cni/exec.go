// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/seed81659283/nodeagent/internal/plugincmd"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	maxOutput = 1 << 20 // bytes of a plugin's standard output
	maxStderr = 1 << 10 // bytes of its standard error that are put into an error
	maxText   = 1 << 10 // bytes of each text of a CNI error

	// outputWait is how long a run waits, after the plugin has exited, for a child process that keeps the output open.
	outputWait = time.Second
	// Retries of a plugin file that is being written (ETXTBSY).
	busyTries = 6
	busyDelay = time.Second
)

// Call describes one run of a plugin.
type Call struct {
	Command string // such as "ADD"
	Plugin  string // the file name
	Took    time.Duration
	Err     error // nil: it succeeded
}

// pluginRunner runs plugins for libcni. Each runs in a process group of its own, which is killed when the context ends. Its
// output is limited.
type pluginRunner struct {
	version.PluginDecoder

	called func(Call) // nil: not called
}

var _ invoke.Exec = (*pluginRunner)(nil)

// FindInPath returns the path of the first executable in dirs with the name plugin.
func (r *pluginRunner) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// ExecPlugin runs the plugin at path and returns its standard output. It checks the output of an ADD, because libcni could
// panic when it parses an invalid result.
func (r *pluginRunner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	command := getCommand(environ)
	began := time.Now()
	out, err := runWithRetry(ctx, path, stdin, environ)
	if err == nil && command == "ADD" {
		if err = checkResult(out); err != nil {
			err = fmt.Errorf("result of plugin %s: %w", filepath.Base(path), err)
		}
	}
	if r.called != nil {
		r.called(Call{Command: command, Plugin: filepath.Base(path), Took: time.Since(began), Err: err})
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func getCommand(environ []string) string {
	for _, e := range environ {
		if command, ok := strings.CutPrefix(e, "CNI_COMMAND="); ok {
			return command
		}
	}
	return ""
}

func runWithRetry(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := runPlugin(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return out, err
		}
		if sleep.For(ctx, busyDelay) != nil {
			return nil, err
		}
	}
}

// runPlugin runs the plugin at path once. If the plugin reports an error itself, the returned error is a [types.Error].
func runPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := plugincmd.Output{Max: maxOutput}, plugincmd.Output{Max: maxStderr, Drop: true}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = outputWait
	err := plugincmd.Run(cmd, true)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		// A child process that keeps the output open does not invalidate a complete result.
		return stdout.Text, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s was killed: %w%s", filepath.Base(path), context.Cause(ctx), quoteStderr(stderr.Text))
	case stdout.Exceeded:
		return nil, fmt.Errorf("plugin %s: %w", filepath.Base(path), errTooLong)
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, parsePluginError(ended, stdout.Text, stderr.Text)
	}
	return nil, err // the plugin was not started
}

// parsePluginError returns the CNI error that a failed plugin has printed, or else an error with its exit status and
// stderr.
func parsePluginError(exitErr error, stdout, stderr []byte) error {
	if len(stdout) == 0 {
		return fmt.Errorf("exited with %w and no error message%s", exitErr, quoteStderr(stderr))
	}
	e := &types.Error{}
	if json.Unmarshal(stdout, e) != nil { // stdout is not quoted: it may be a configuration with secrets
		return fmt.Errorf("exited with %w, and its output is not a CNI error%s", exitErr, quoteStderr(stderr))
	}
	e.Msg, e.Details = truncateText(e.Msg), truncateText(e.Details)
	return e
}

// truncateText cuts s to about maxText bytes and replaces invalid UTF-8.
func truncateText(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// quoteStderr returns ": " and the quoted standard error of a plugin, or an empty string if the standard error is blank.
func quoteStderr(stderr []byte) string {
	if said := strings.TrimSpace(string(stderr)); said != "" {
		return fmt.Sprintf(": %q", said)
	}
	return ""
}

// errTooLong is the reason why a plugin with too much output is killed.
var errTooLong = fmt.Errorf("output exceeds %d bytes", maxOutput)
