// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// exited returns a failed container.
func exited(name string) *cri.Container {
	return &cri.Container{ID: name + "-0", Name: name, State: cri.ContainerExited, ExitCode: 1, Reason: "Error"}
}

// setFallbackToLogs sets the policy FallbackToLogsOnError in the annotations of c.
func setFallbackToLogs(c *cri.Container) {
	c.Annotations = map[string]string{
		podspec.AnnotationTerminationMessagePolicy: string(corev1.TerminationMessageFallbackToLogsOnError),
	}
}

// newLog returns a log whose lines have this text and a number.
func newLog(lines int, text string) string {
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "2026-01-01T00:00:00Z stdout F %s%d\n", text, i+1)
	}
	return b.String()
}

// The limits are those of the kubelet: 4 KiB of a message file, 80 lines and 2 KiB of a log.
func TestReadMessageLimits(t *testing.T) {
	wide := strings.Repeat("w", 97) // a line has 100 bytes with its number and line break
	tests := map[string]struct {
		file   string // content of the message file; "-": no file
		log    string // empty: no log
		change func(c *cri.Container)
		want   string
	}{
		"empty file":              {},
		"no file":                 {file: "-"},
		"message":                 {file: "out of cheese\n", want: "out of cheese\n"},
		"message of maximum size": {file: strings.Repeat("x", 4096), want: strings.Repeat("x", 4096)},
		"larger message":          {file: strings.Repeat("x", 9000) + "the end", want: strings.Repeat("x", 4096-7) + "the end"},
		"invalid UTF-8":           {file: "\xff\x00\xfe", want: "\xff\x00\xfe"},
		"exit code 0":             {file: "all is well", change: func(c *cri.Container) { c.ExitCode = 0 }, want: "all is well"},
		"policy File":             {log: newLog(1, "line ")},
		"log":                     {log: newLog(2, "line "), change: setFallbackToLogs, want: "line 1\nline 2\n"},
		"message and log":         {file: "m", log: newLog(2, "line "), change: setFallbackToLogs, want: "m"},
		"log, no message file":    {file: "-", log: newLog(1, "line "), change: setFallbackToLogs, want: "line 1\n"},
		"many lines":              {log: newLog(100, ""), change: setFallbackToLogs, want: numberLines(21, 100)},
		"wide lines":              {log: newLog(99, wide), change: setFallbackToLogs, want: lastWideLines(wide, 99)},
		"log missing":             {change: setFallbackToLogs},
		"log, exit code 0": {log: newLog(1, "line "), change: func(c *cri.Container) {
			setFallbackToLogs(c)
			c.ExitCode = 0
		}},
		"log, container never ran": {log: newLog(1, "line "), change: func(c *cri.Container) {
			setFallbackToLogs(c)
			c.Reason = "ContainerCannotRun"
		}},
		"log with an incomplete line": {log: newLog(1, "line ") + "garbage\n", change: setFallbackToLogs, want: "line 1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d, c := poddir.DirOf(t.TempDir(), "uid-a"), exited("main")
			if tt.file != "-" {
				path, err := d.CreateMessageFile("main", 0)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, []byte(tt.file), 0o600))
			}
			c.LogPath = filepath.Join(t.TempDir(), "0.log")
			if tt.log != "" {
				write(t, c.LogPath, tt.log)
			}
			if tt.change != nil {
				tt.change(c)
			}
			require.Equal(t, tt.want, d.ReadMessage(t.Context(), c))
		})
	}
}

// numberLines returns lines with the numbers from the first to the last parameter.
func numberLines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}

// lastWideLines returns the last 2 KiB of the messages of logOf(lines, text).
func lastWideLines(text string, lines int) string {
	var b strings.Builder
	for i := lines - 30; i <= lines; i++ {
		fmt.Fprintf(&b, "%s%d\n", text, i)
	}
	return b.String()[b.Len()-2048:]
}

// Each container instance has its own message.
func TestReadMessageOfEachInstance(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	for attempt := range uint32(3) {
		path, err := d.CreateMessageFile("main", attempt)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, fmt.Append(nil, "of attempt ", attempt), 0o600))
	}
	c := exited("main")
	c.Attempt = 1
	require.Equal(t, "of attempt 1", d.ReadMessage(t.Context(), c))
}

// A kubelet mounts a file with a random name at the path in the annotation.
func TestReadMessageOfKubeletContainer(t *testing.T) {
	const file = "1f2e3d4c"
	for name, test := range map[string]struct {
		target, hostPath string
		want             string
	}{
		"default path":              {"/dev/termination-log", "uid-a/containers/main/" + file, "of the kubelet"},
		"path that is cleaned":      {"dev//termination-log", "uid-a/containers/main/" + file, "of the kubelet"},
		"another mount":             {"/var/message", "uid-a/containers/main/" + file, "ours"},
		"no annotation":             {"", "uid-a/containers/main/" + file, "ours"},
		"file of another pod":       {"/dev/termination-log", "uid-b/containers/main/" + file, "ours"},
		"file of another container": {"/dev/termination-log", "uid-a/containers/other/" + file, "ours"},
		"file below the directory":  {"/dev/termination-log", "uid-a/containers/main/a/" + file, "ours"},
		"directory":                 {"/dev/termination-log", "uid-a/containers/main/..", "ours"},
		"missing file":              {"/dev/termination-log", "uid-a/containers/main/none", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			d, c := poddir.DirOf(root, "uid-a"), exited("main")
			ours, err := d.CreateMessageFile("main", 0)
			require.NoError(t, err)
			write(t, ours, "ours")
			write(t, filepath.Join(filepath.Dir(ours), file), "of the kubelet")
			c.Annotations = map[string]string{podspec.AnnotationTerminationMessagePath: test.target}
			c.Mounts = []cri.Mount{
				{ContainerPath: "/data", HostPath: "/data"},
				{ContainerPath: "/dev/termination-log", HostPath: root + "/" + test.hostPath},
			}
			require.Equal(t, test.want, d.ReadMessage(t.Context(), c))
		})
	}
}
