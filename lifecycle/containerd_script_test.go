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

// awaitTimes waits until a line was logged a number of times.
func (h *host) awaitTimes(line string, times int) {
	h.t.Helper()
	h.eventually(func() error {
		said := slices.DeleteFunc(h.said(), func(l string) bool { return l != line })
		if len(said) < times {
			return fmt.Errorf("%q was said %d times, want %d", line, len(said), times)
		}
		return nil
	})
}

// awaitSaid waits until a line was logged.
func (h *host) awaitSaid(line string) { h.t.Helper(); h.awaitTimes(line, 1) }

// saying is a line of the log of a container.
type saying struct {
	at   time.Time
	line string // "container: text"
}

// sayings returns the log lines of all container instances of the pod, by time.
func (h *host) sayings() []saying {
	h.keepLogs()
	files, err := filepath.Glob(filepath.Join(h.kept, "*"))
	require.NoError(h.t, err)
	var all []saying
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
			all = append(all, saying{at, container + ": " + f[3]})
		}
	}
	slices.SortStableFunc(all, func(a, b saying) int { return a.at.Compare(b.at) })
	return all
}

// keepLogs creates hard links to all current logs. Two logs of one name are those of an instance whose start was canceled and of
// its replacement.
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

// said returns the log lines, in order.
func (h *host) said() []string {
	var lines []string
	for _, s := range h.sayings() {
		lines = append(lines, s.line)
	}
	return lines
}

// when returns the time when a container first logged a line.
func (h *host) when(line string) time.Time {
	h.t.Helper()
	for _, s := range h.sayings() {
		if s.line == line {
			return s.at
		}
	}
	require.FailNow(h.t, "not logged: "+line, h.account())
	return time.Time{}
}

// requireSaid waits until the lines are logged in this order. If the agent is not restarted, no other lines are allowed.
func (h *host) requireSaid(want ...string) {
	h.t.Helper()
	var said []string
	h.eventually(func() error {
		said = h.said()
		rest := want
		for _, line := range said {
			if len(rest) > 0 && line == rest[0] {
				rest = rest[1:]
			}
		}
		if len(rest) > 0 {
			return fmt.Errorf("not said, or not in this order: %q", rest)
		}
		return nil
	})
	if !h.restart {
		require.Len(h.t, said, len(want), h.account())
	}
}

// Parts of scripts.
const (
	// lasting exits when it gets SIGTERM, and logs it.
	lasting = leaves + endless

	// leaves and stays are the first parts of lasting and deaf. A script that logs between them and endless has installed its
	// signal handler by then.
	leaves  = `trap 'echo term; exit 0' TERM; `
	stays   = `trap 'echo term' TERM; `
	endless = `while :; do sleep 3600 & wait $!; done`
)

// life is the first part of a script that counts the instances of its container, in n, and logs the number. An instance whose
// start is canceled does not count: the runtime stops it before it gets that far.
func (h *host) life(container string) string {
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
