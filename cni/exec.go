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
	maxStderr = 1 << 10 // bytes of its standard error that become part of an error
	maxText   = 1 << 10 // bytes of each text of an error that it reports

	// holdDelay is how long a process that has its output open is waited for once the plugin has ended.
	holdDelay = time.Second
	// A plugin that is just being written, which cannot be executed, is tried again.
	busyTries = 6
	busyDelay = time.Second
)

// Call is one run of a plugin.
type Call struct {
	Command string // such as "ADD"
	Plugin  string // the file name
	Took    time.Duration
	Err     error // nil: it succeeded
}

// runner runs plugins for libcni: each in a process group of its own, which is killed when the context ends, and with a
// limit on what it may print.
type runner struct {
	version.PluginDecoder

	called func(Call) // nil: nobody is told
}

var _ invoke.Exec = (*runner)(nil)

// FindInPath returns the path of a plugin.
func (r *runner) FindInPath(plugin string, dirs []string) (string, error) {
	return invoke.FindInPath(plugin, dirs)
}

// ExecPlugin runs a plugin and returns its standard output.
func (r *runner) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	command := commandOf(environ)
	began := time.Now()
	out, err := runRetrying(ctx, path, stdin, environ)
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

func commandOf(environ []string) string {
	for _, e := range environ {
		if command, ok := strings.CutPrefix(e, "CNI_COMMAND="); ok {
			return command
		}
	}
	return ""
}

func runRetrying(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for try := 1; ; try++ {
		out, err := run(ctx, path, stdin, environ)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return out, err
		}
		if sleep.For(ctx, busyDelay) != nil {
			return nil, err
		}
	}
}

// run runs a plugin once. What the plugin says about its failure is a [types.Error].
func run(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	stdout, stderr := plugincmd.Output{Max: maxOutput}, plugincmd.Output{Max: maxStderr, Drop: true}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), &stdout, &stderr
	cmd.WaitDelay = holdDelay
	err := plugincmd.Run(cmd, true)
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil:
		// Who stays behind with the output open does not spoil a complete answer.
		return stdout.Held, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s was killed: %w%s", filepath.Base(path), context.Cause(ctx), quoted(stderr.Held))
	case stdout.Over:
		return nil, fmt.Errorf("plugin %s: %w", filepath.Base(path), errTooLong)
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, pluginError(ended, stdout.Held, stderr.Held)
	}
	return nil, err // it was not started
}

// pluginError reads the error that a plugin prints. What is no error is not repeated: plugins may print their
// configuration, which may hold secrets.
func pluginError(ended error, stdout, stderr []byte) error {
	if len(stdout) == 0 {
		return fmt.Errorf("it ended with %w and no error message%s", ended, quoted(stderr))
	}
	e := &types.Error{}
	if json.Unmarshal(stdout, e) != nil {
		return fmt.Errorf("it ended with %w, and what it printed is no CNI error%s", ended, quoted(stderr))
	}
	e.Msg, e.Details = shortened(e.Msg), shortened(e.Details)
	return e
}

// shortened returns a text of bounded length.
func shortened(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// quoted returns the standard error of a plugin as the end of a sentence.
func quoted(stderr []byte) string {
	if said := strings.TrimSpace(string(stderr)); said != "" {
		return fmt.Sprintf(": %q", said)
	}
	return ""
}

// errTooLong is why a plugin was ended.
var errTooLong = fmt.Errorf("it prints more than %d bytes", maxOutput)
