// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readLog joins the entries of each stream of log files. It fails the test on a malformed line.
func readLog(t *testing.T, paths ...string) map[string]string {
	t.Helper()
	streams := make(map[string]string)
	joined := make(map[string]*bytes.Buffer)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range bytes.Lines(data) {
			fields := bytes.SplitN(line, []byte{' '}, 4)
			if len(fields) != 4 || len(fields[3]) > 16<<10+1 {
				require.FailNow(t, "malformed log entry", "%.100q", line)
			}
			if _, err := time.Parse(time.RFC3339Nano, string(fields[0])); err != nil {
				require.NoError(t, err)
			}
			stream, content := string(fields[1]), fields[3]
			if joined[stream] == nil {
				joined[stream] = new(bytes.Buffer)
			}
			switch string(fields[2]) {
			case "P":
				content = bytes.TrimSuffix(content, []byte{'\n'})
			case "F":
			default:
				require.FailNow(t, "tag", "%.100q", line)
			}
			joined[stream].Write(content)
		}
	}
	for stream, b := range joined {
		streams[stream] = b.String()
	}
	return streams
}

func TestLog(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	for _, test := range []struct {
		name, script   string
		stdout, stderr string
	}{
		{"nothing", `:`, "", ""},
		{"no newline at the end", `printf 'a\nb'`, "a\nb", ""},
		{"empty lines and carriage returns", `printf '\n\r\n\n'`, "\n\r\n\n", ""},
		{"a megabyte without newline", `head -c 1048576 /dev/zero | tr '\0' x`, strings.Repeat("x", 1<<20), ""},
		{"binary", `printf '\000\377\n\001 P F \033'`, "\x00\xff\n\x01 P F \x1b", ""},
		{
			"both streams", `for i in $(seq 1000); do echo o; echo e >&2; done`,
			strings.Repeat("o\n", 1000), strings.Repeat("e\n", 1000),
		},
		{
			"full pipes at the exit", `head -c 65536 /dev/zero | tr '\0' '\n' | tee /dev/stderr`,
			strings.Repeat("\n", 65536), strings.Repeat("\n", 65536),
		},
		{"fast writer", `yes fast | head -n 500000`, strings.Repeat("fast\n", 500000), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := shellConfig(test.script)
			c.Name = strings.ReplaceAll(test.name, " ", "-")
			id := startContainer(t, rt, sandbox, c)
			require.Zero(t, awaitExit(t, rt, id).ExitCode)
			got := readLog(t, filepath.Join(logs, c.Name+".log"))
			assert.True(t, test.stdout == got["stdout"], "stdout differs: %d bytes, want %d", len(got["stdout"]), len(test.stdout))
			assert.True(t, test.stderr == got["stderr"], "stderr differs: %d bytes, want %d", len(got["stderr"]), len(test.stderr))
		})
	}
}

// The log is renamed and reopened many times while the container writes at full speed.
func TestReopenLogLosesNoOutput(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	enough := filepath.Join(t.TempDir(), "enough")
	id := startContainer(t, rt, sandbox, shellConfig(fmt.Sprintf(
		`i=0; while [ ! -e %[1]s ]; do echo $i; i=$((i+1)); done; echo $i >%[1]s`, enough)))
	path := filepath.Join(logs, "c.log")
	var paths []string
	for i := range 50 {
		rotated := fmt.Sprint(path, ".", i)
		require.NoError(t, os.Rename(path, rotated))
		paths = append(paths, rotated)
		require.NoError(t, rt.ReopenContainerLog(t.Context(), id))
	}
	require.NoError(t, os.WriteFile(enough, nil, 0o600))
	require.Zero(t, awaitExit(t, rt, id).ExitCode)
	count, err := os.ReadFile(enough)
	require.NoError(t, err)
	lines, err := strconv.Atoi(strings.TrimSpace(string(count)))
	require.NoError(t, err)
	require.Positive(t, lines)
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i)
	}
	assert.True(t, want.String() == readLog(t, append(paths, path)...)["stdout"], "lines are lost or duplicated among %d", lines)
}

// The log and the exit code are recorded while no agent runs.
func TestLogAndExitCodeWithoutAgent(t *testing.T) {
	root := t.TempDir()
	rt := openRuntime(t, root)
	sandbox, logs := runPodSandbox(t, rt)
	id := startContainer(t, rt, sandbox, shellConfig(`sleep 0.2; echo late; exit 3`))
	require.NoError(t, rt.Close())
	path := filepath.Join(logs, "c.log")
	requireEventually(t, "line is logged", func() bool { return readLog(t, path)["stdout"] == "late\n" })
	assert.EqualValues(t, 3, awaitExit(t, openRuntime(t, root), id).ExitCode)
}
