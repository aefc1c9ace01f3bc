// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// Log lines of containers, and the shell scripts that they run.

// awaitLoggedTimes waits until a line was logged a number of times.
func (h *host) awaitLoggedTimes(line string, times int) {
	h.t.Helper()
	h.eventually(func() error {
		logged := slices.DeleteFunc(h.logged(), func(l string) bool { return l != line })
		if len(logged) < times {
			return fmt.Errorf("%q was logged %d times, want %d", line, len(logged), times)
		}
		return nil
	})
}

// awaitLogged waits until a line was logged.
func (h *host) awaitLogged(line string) { h.t.Helper(); h.awaitLoggedTimes(line, 1) }

// logEntry is a line of the log of a container.
type logEntry struct {
	at   time.Time
	line string // "container: text"
}

// logEntries returns the log lines of all container instances of the pod, by time.
func (h *host) logEntries() []logEntry {
	h.keepLogs()
	files, err := filepath.Glob(filepath.Join(h.kept, "*"))
	require.NoError(h.t, err)
	var all []logEntry
	for _, file := range files {
		container, _, _ := strings.Cut(filepath.Base(file), "_")
		text, err := os.ReadFile(file)
		require.NoError(h.t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4) // time, stream, tag, text
			if len(f) < 4 || f[1] != "stdout" {
				continue // incomplete line, or output of the shell itself
			}
			at, err := time.Parse(time.RFC3339Nano, f[0])
			require.NoError(h.t, err, "%s: %s", file, line)
			all = append(all, logEntry{at, container + ": " + f[3]})
		}
	}
	slices.SortStableFunc(all, func(a, b logEntry) int { return a.at.Compare(b.at) })
	return all
}

// keepLogs creates hard links to all current logs. Two logs can have the same name: an instance whose start was canceled,
// and its replacement.
func (h *host) keepLogs() {
	files, _ := filepath.Glob(filepath.Join(h.logs, "*", "*", "*.log"))
	for _, file := range files {
		dir, life := filepath.Split(file)
		log, _ := os.Stat(file)
		for n := 0; log != nil; n++ {
			link := filepath.Join(h.kept, fmt.Sprintf("%s_%s_%d", filepath.Base(dir), life, n))
			kept, err := os.Stat(link)
			if err == nil && !os.SameFile(kept, log) {
				continue
			}
			_ = os.Link(file, link) // the link may exist already
			break
		}
	}
}

// logged returns the log lines, in order.
func (h *host) logged() []string {
	var lines []string
	for _, s := range h.logEntries() {
		lines = append(lines, s.line)
	}
	return lines
}

// timeLogged returns the time when a container first logged a line.
func (h *host) timeLogged(line string) time.Time {
	h.t.Helper()
	for _, s := range h.logEntries() {
		if s.line == line {
			return s.at
		}
	}
	require.FailNow(h.t, "not logged: "+line, h.diagnostics())
	return time.Time{}
}

// requireLogged waits until the lines are logged in this order. If the agent is not restarted, no other lines are allowed.
func (h *host) requireLogged(want ...string) {
	h.t.Helper()
	var logged []string
	h.eventually(func() error {
		logged = h.logged()
		rest := want
		for _, line := range logged {
			if len(rest) > 0 && line == rest[0] {
				rest = rest[1:]
			}
		}
		if len(rest) > 0 {
			return fmt.Errorf("not logged, or not in this order: %q", rest)
		}
		return nil
	})
	if !h.restart {
		require.Len(h.t, logged, len(want), h.diagnostics())
	}
}

// Parts of scripts.
const (
	// runUntilTerm runs until SIGTERM, which it logs.
	runUntilTerm = exitOnTerm + sleepForever

	// exitOnTerm and ignoreTerm install a signal handler. A script that logs between one of them and sleepForever has
	// installed the handler before.
	exitOnTerm   = `trap 'echo term; exit 0' TERM; `
	ignoreTerm   = `trap 'echo term' TERM; `
	sleepForever = `while :; do sleep 3600 & wait $!; done`
)

// countInstances is the first part of a script that counts the instances of its container in n, and logs the number. An
// instance whose start is canceled is not counted: the runtime stops it earlier.
func (h *host) countInstances(container string) string {
	pause := "sleep 0.1"
	if h.restart {
		pause = "sleep 1"
	}
	file := "$SHARED/life-" + container
	return pause + "; n=$(($(cat " + file + " 2>/dev/null || echo 0) + 1)); echo life $n; echo $n > " + file + "; "
}

// awaitFile waits for a file that another container creates.
func awaitFile(file string) string {
	return "until [ -e $SHARED/" + file + " ]; do sleep 0.1; done; "
}
