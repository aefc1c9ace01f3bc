// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// containerChildren tests that stopping a container kills its child processes. It detects a surviving child by its log output,
// which every runtime records.
func containerChildren(t *testCase) {
	if !t.f.Logs {
		t.Skip("Fixture.Logs is false")
	}
	s := t.newPodConfig()
	cfg := t.newContainerConfig(s, "main", leavesChild())
	id := t.startContainer(t.runSandbox(s), s, cfg)
	t.Succeed(t.rt.StopContainer(t.ctx, id, 10*time.Second), ruleStop, "StopContainer")
	c := t.containerStatus(id)
	t.Hold(c.ExitCode == 0, ruleExitCode, "a program that exits with 0 on SIGTERM shows %d", c.ExitCode)

	path := filepath.Join(s.LogDirectory, cfg.LogPath)
	last := int64(-1)
	t.Until(ruleStop, func() (bool, string) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		same := info.Size() == last
		last = info.Size()
		if !same { // the child prints ten lines in this time
			time.Sleep(500 * time.Millisecond) // ten lines of the child
		}
		return same, "a child of the container goes on printing"
	})
}

func containerLog(t *testCase) {
	if !t.f.Logs {
		t.Skip("Fixture.Logs is false")
	}
	s := t.newPodConfig()
	cfg := t.newContainerConfig(s, "main", printsLines())
	begin := time.Now()
	id := t.startContainer(t.runSandbox(s), s, cfg)
	t.awaitExit(id)
	path := filepath.Join(s.LogDirectory, cfg.LogPath)
	t.Hold(t.containerStatus(id).LogPath == path, ruleLogPath, "LogPath is %q, want %q", t.containerStatus(id).LogPath, path)

	want := map[string]string{
		"stdout": "out 1\n\nvariable argument\n" + strings.Repeat("x", 50000) + "end\n",
		"stderr": "err 1\n",
	}
	t.Until(ruleLogPath, func() (bool, string) {
		data, err := os.ReadFile(path)
		if err != nil {
			return false, err.Error()
		}
		got, err := readLog(string(data), begin)
		if err != nil {
			return false, path + ": " + err.Error()
		}
		for stream := range want {
			if got[stream] != want[stream] {
				return false, fmt.Sprintf("%s of %s is %.200q, want %.200q", stream, path, got[stream], want[stream])
			}
		}
		return true, ""
	})
}

// containerLogReopened tests that no line is lost when a log is rotated as the kubelet does it.
func containerLogReopened(t *testCase) {
	r, ok := t.rt.(cri.LogReopener)
	if !ok {
		t.Skip("the runtime is no cri.LogReopener")
	}
	s := t.newPodConfig()
	cfg := t.newContainerConfig(s, "main", printsNumbers())
	begin := time.Now()
	id := t.startContainer(t.runSandbox(s), s, cfg)
	path := filepath.Join(s.LogDirectory, cfg.LogPath)
	if t.f.Logs {
		t.awaitLines(path, 10)
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
	t.Succeed(r.ReopenContainerLog(t.ctx, id), ruleReopen, "ReopenContainerLog")
	if t.f.Logs {
		t.awaitLines(path, 10)
	}
	t.Succeed(t.rt.StopContainer(t.ctx, id, 0), ruleStop, "StopContainer")
	t.Hold(r.ReopenContainerLog(t.ctx, id) != nil, ruleReopenRunning, "ReopenContainerLog of an exited container succeeds")
	t.requireError(r.ReopenContainerLog(t.ctx, unknownID), cri.ErrNotFound, ruleNotFound, "ReopenContainerLog of an unknown container")
	if !t.f.Logs {
		return
	}
	var numbers []string
	for _, file := range []string{path + ".1", path} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		streams, err := readLog(string(data), begin)
		t.Succeed(err, ruleLogPath, "read "+file)
		numbers = append(numbers, strings.Fields(streams["stdout"])...)
	}
	for i, n := range numbers[1:] { // after "ready"
		t.Hold(n == strconv.Itoa(i), ruleReopen, "line %d of the two logs together is %q, want %d", i, n, i)
	}
}

// awaitLines waits until the log file at path has at least this number of lines.
func (t *testCase) awaitLines(path string, want int) {
	t.Helper()
	t.Until(ruleReopen, func() (bool, string) {
		data, err := os.ReadFile(path)
		n := strings.Count(string(data), "\n")
		return n >= want, fmt.Sprintf("%s has %d lines of a container that goes on printing: %s", path, n, errorText(err))
	})
}

// readLog parses a CRI log file, checks its format and times, and returns the output of each stream.
func readLog(log string, begin time.Time) (map[string]string, error) {
	streams := map[string]string{}
	for n, line := range strings.Split(strings.TrimSuffix(log, "\n"), "\n") {
		// time stream tags content, see KEP 3077 and the logs package of k8s.io/cri-client
		f := strings.SplitN(line, " ", 4)
		if len(f) != 4 {
			return nil, fmt.Errorf("line %d: %.200q has not four fields", n+1, line)
		}
		at, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		if at.Before(begin.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
			return nil, fmt.Errorf("line %d: time %v is not that of the test", n+1, at)
		}
		if f[1] != "stdout" && f[1] != "stderr" {
			return nil, fmt.Errorf("line %d: stream is %q", n+1, f[1])
		}
		// F ends the line of output. After P, the next entry of the stream continues it.
		switch tag, _, _ := strings.Cut(f[2], ":"); tag {
		case "F":
			streams[f[1]] += f[3] + "\n"
		case "P":
			streams[f[1]] += f[3]
		default:
			return nil, fmt.Errorf("line %d: tag is %q", n+1, f[2])
		}
	}
	return streams, nil
}
