// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/lab"
	"github.com/seed81659283/nodeagent/internal/script"
)

// TestIntegrationCrictl runs scripts of crictl commands, and compares all output. A line is a shell command. "NAME =
// COMMAND" stores its output in $NAME, which replaces the value in later output. Times, sizes and other values that change
// are replaced by "~".
func TestIntegrationCrictl(t *testing.T) {
	crictl := lab.Tool(t, "crictl")
	script.Run(t, "testdata/crictl/*.txt", func(t *testing.T, text string) string {
		u := newShellUser(t, crictl)
		return script.Lines(text, ">", func(out *strings.Builder, words []string) {
			name, line := "", strings.Join(words, " ")
			if before, after, ok := strings.Cut(line, " = "); ok && !strings.Contains(before, " ") {
				name, line = before, after
			}
			for shown := range strings.Lines(u.run(name, line)) {
				fmt.Fprintf(out, "> %s\n", strings.TrimRight(shown, " \n"))
			}
		})
	})
}

// shellUser runs shell commands in a directory with the config files of a pod.
type shellUser struct {
	t     *testing.T
	dir   string
	env   []string
	shown []string // pairs of a text and its replacement, for strings.NewReplacer
}

// newShellUser starts the runtime, which is terminated with the test.
func newShellUser(t *testing.T, crictl string) *shellUser {
	require.NoError(t, exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").Run(), "the loopback is up, where sessions are served")
	dir := t.TempDir()
	socket := filepath.Join(dir, "cri.sock")
	p := program.Start(t, "-state", filepath.Join(dir, "state"), "-socket", socket)
	t.Cleanup(func() { require.Zero(t, p.Terminate(10*time.Second)) })
	client, err := remote.Dial("unix://"+socket, remote.Options{})
	require.NoError(t, err)
	defer client.Close()
	exetest.Eventually(t, 30*time.Second, func() error { return client.Check(t.Context()) })
	work := filepath.Join(dir, "work")
	require.NoError(t, os.MkdirAll(work, 0o755))
	for name, text := range map[string]string{
		"pod.json": `{"metadata": {"name": "web", "namespace": "default", "uid": "u1"}, "log_directory": "` + filepath.Join(dir, "logs") + `",
			"labels": {"app": "web"}, "linux": {"cgroup_parent": "/", "security_context": {"namespace_options": {"network": 2}}}}`,
		"early.json": `{"metadata": {"name": "early", "namespace": "default", "uid": "u0"}, "linux": {"cgroup_parent": "/"}}`,
		"main.json": `{"metadata": {"name": "main"}, "image": {"image": "none"}, "log_path": "main.log", "labels": {"app": "web"}, "stdin": true,
			"command": ["/bin/sh", "-c", "echo one; until test -e ` + work + `/go-on; do sleep 0.1; done; echo two >&2; while read line; do echo got $line; done; sleep 1000"]}`,
		"job.json": `{"metadata": {"name": "job"}, "image": {"image": "none"}, "log_path": "job.log", "command": ["/bin/sh", "-c", "echo done; exit 3"]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(work, name), []byte(text), 0o600))
	}
	return &shellUser{
		t: t, dir: work, shown: []string{dir, "$DIR"},
		env: append(os.Environ(), "PATH="+filepath.Dir(crictl)+":"+os.Getenv("PATH"), "HOME="+work,
			"CONTAINER_RUNTIME_ENDPOINT=unix://"+socket, "IMAGE_SERVICE_ENDPOINT=unix://"+socket, "CRI_CONFIG_FILE="+os.DevNull),
	}
}

// clientLog matches log lines of crictl's client beside its error, blanks the gaps in tables, and changing the values that
// differ in each run.
var (
	clientLog = regexp.MustCompile(`(?m)^E[0-9]{4} .*\n|\x1b\[[0-9]*[A-Z]`)
	blanks    = regexp.MustCompile(`[ \t]+`)
	changing  = regexp.MustCompile(`(About |Less than )?(an?|[0-9]+) (second|minute|hour)s? ago|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)|time="[^"]*" |[0-9]{15,}`)
)

// run returns the output of a command, and its exit code unless that is zero. The output is stored as $name if name is not
// empty.
func (u *shellUser) run(name, line string) string {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Dir, cmd.Env, cmd.WaitDelay = u.dir, u.env, time.Second
	var output, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &errs
	err := cmd.Run()
	text := output.String() + errs.String()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		text += fmt.Sprintf("exit %d\n", exit.ExitCode())
	} else {
		require.NoError(u.t, err, line)
	}
	if value := strings.TrimSpace(output.String()); name != "" {
		require.NoError(u.t, err, text)
		require.Regexp(u.t, "^[0-9a-f]{32}$", value)
		u.env = append(u.env, name+"="+value)
		u.shown = append(u.shown, value, "$"+name, value[:min(13, len(value))], "$"+name)
	}
	text = strings.NewReplacer(u.shown...).Replace(clientLog.ReplaceAllString(text, ""))
	return blanks.ReplaceAllString(changing.ReplaceAllString(text, "~"), " ")
}
