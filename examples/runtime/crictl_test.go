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

// TestIntegrationCrictl has crictl make the calls that a user types, in order, and compares all that it prints. A line is a command of
// a shell; "NAME = COMMAND" keeps its output as $NAME, by which it is shown from then on. What differs from run to run, such as times
// and sizes, is shown as "~".
func TestIntegrationCrictl(t *testing.T) {
	crictl := lab.Tool(t, "crictl")
	script.Run(t, "testdata/crictl/*.txt", func(t *testing.T, text string) string {
		u := newUser(t, crictl)
		return script.Lines(text, ">", func(out *strings.Builder, words []string) {
			name, line := "", strings.Join(words, " ")
			if before, after, ok := strings.Cut(line, " = "); ok && !strings.Contains(before, " ") {
				name, line = before, after
			}
			for shown := range strings.Lines(u.types(name, line)) {
				fmt.Fprintf(out, "> %s\n", strings.TrimRight(shown, " \n"))
			}
		})
	})
}

// user types commands in a directory with the files of a pod.
type user struct {
	t     *testing.T
	dir   string
	env   []string
	shown []string // pairs of a text and how it is shown, for strings.NewReplacer
}

// newUser starts the runtime, and ends it with the test.
func newUser(t *testing.T, crictl string) *user {
	require.NoError(t, exec.CommandContext(t.Context(), "ip", "link", "set", "lo", "up").Run(), "sessions are served on the loopback")
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
			"command": ["/bin/sh", "-c", "echo one; sleep 0.1; echo two >&2; while read line; do echo got $line; done; sleep 1000"]}`,
		"job.json": `{"metadata": {"name": "job"}, "image": {"image": "none"}, "log_path": "job.log", "command": ["/bin/sh", "-c", "echo done; exit 3"]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(work, name), []byte(text), 0o600))
	}
	return &user{
		t: t, dir: work, shown: []string{dir, "$DIR"},
		env: append(os.Environ(), "PATH="+filepath.Dir(crictl)+":"+os.Getenv("PATH"), "HOME="+work,
			"CONTAINER_RUNTIME_ENDPOINT=unix://"+socket, "IMAGE_SERVICE_ENDPOINT=unix://"+socket, "CRI_CONFIG_FILE="+os.DevNull),
	}
}

// clientLog is what the client of crictl logs beside the error that crictl prints, blanks are the gaps in tables, and changing differs from
// run to run.
var (
	clientLog = regexp.MustCompile(`(?m)^E[0-9]{4} .*\n|\x1b\[[0-9]*[A-Z]`)
	blanks    = regexp.MustCompile(`[ \t]+`)
	changing  = regexp.MustCompile(`(About |Less than )?(an?|[0-9]+) (second|minute|hour)s? ago|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)|time="[^"]*" |[0-9]{15,}`)
)

// types returns all that a command prints, with its exit code if that is not zero.
func (u *user) types(name, line string) string {
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
