// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/seed81659283/nodeagent/cri"
)

// sessionProgram is a shell script that TestSessions runs, with the function that a [Runtime] calls in its place.
type sessionProgram struct {
	name  string
	shell string
	args  []string
	play  func(ctx context.Context, arg func(int) string, s cri.Session) int
}

func (p sessionProgram) argv() []string {
	return append([]string{"/bin/sh", "-c", p.shell, p.name}, p.args...)
}

// size is what the terminals of the suite have.
var size = cri.TerminalSize{Width: 77, Height: 33} //nolint:gochecknoglobals // a constant

const awaitSize = `while [ "$(stty size 2>/dev/null)" != "33 77" ]; do sleep 0.02; done; `

// sessionPrograms returns all programs, with placeholders for their arguments.
func sessionPrograms() []sessionProgram {
	return []sessionProgram{sleeps(), both(0), copies(), printsInSession(0), onTerminal(), lingersInSession(""), lines(), once(), typed(), floods()}
}

// sleeps does nothing.
func sleeps() sessionProgram {
	return sessionProgram{name: "sleeps", shell: `trap 'exit 0' TERM; while :; do sleep 1; done`, play: func(ctx context.Context, _ func(int) string, _ cri.Session) int {
		_ = Hang(ctx)
		return 137
	}}
}

// both writes to both streams and exits with a code.
func both(code int) sessionProgram {
	return sessionProgram{name: "both", shell: `echo out; echo err >&2; exit "$1"`, args: []string{strconv.Itoa(code)}, play: func(_ context.Context, arg func(int) string, s cri.Session) int {
		say(s.Stdout, "out\n")
		say(s.Stderr, "err\n")
		code, _ := strconv.Atoi(arg(1))
		return code
	}}
}

// copies copies its input.
func copies() sessionProgram {
	return sessionProgram{name: "copies", shell: `cat; echo end >&2`, play: func(_ context.Context, _ func(int) string, s cri.Session) int {
		if s.Stdin != nil {
			_, _ = io.Copy(s.Stdout, s.Stdin)
		}
		say(s.Stderr, "end\n")
		return 0
	}}
}

// printsInSession writes n bytes and ends at once.
func printsInSession(n int) sessionProgram {
	return sessionProgram{name: "prints", shell: `head -c "$1" /dev/zero | tr '\0' x; exit 4`, args: []string{strconv.Itoa(n)}, play: func(_ context.Context, arg func(int) string, s cri.Session) int {
		n, _ := strconv.Atoi(arg(1))
		for rest := bytes.Repeat([]byte{'x'}, n); len(rest) > 0; {
			part := rest[:min(len(rest), 4096)]
			_, _ = s.Stdout.Write(part)
			rest = rest[len(part):]
		}
		return 4
	}}
}

// onTerminal wants a terminal of a certain size.
func onTerminal() sessionProgram {
	return sessionProgram{name: "onTerminal", shell: awaitSize + `test -t 0 && test -t 1 && test -t 2 && echo terminal; echo err >&2; exit 5`, play: func(ctx context.Context, _ func(int) string, s cri.Session) int {
		if await(ctx, s) {
			say(s.Stdout, "terminal\r\nerr\r\n")
		}
		return 5
	}}
}

// lingersInSession does not end, and leaves something behind. The mark is on its command lines.
func lingersInSession(mark string) sessionProgram {
	return sessionProgram{name: "lingers", shell: `(while :; do sleep 1; done) & echo ready; while :; do sleep 1; done`, args: []string{mark}, play: func(ctx context.Context, _ func(int) string, s cri.Session) int {
		say(s.Stdout, "ready\n")
		_ = Hang(ctx)
		return 137
	}}
}

// lines answers each line of its input until it reads "end".
func lines() sessionProgram {
	return sessionProgram{name: "lines", shell: `while read line && [ "$line" != end ]; do echo "out $line"; echo "err $line" >&2; done; echo bye; exit 6`}
}

// once copies its input to its end.
func once() sessionProgram {
	return sessionProgram{name: "once", shell: `cat; echo end; exit 7`}
}

// typed waits for the size of its terminal, and answers lines until it reads "end".
func typed() sessionProgram {
	return sessionProgram{name: "typed", shell: awaitSize + `while read line && [ "$line" != end ]; do echo "got $line" >&2; done; echo bye; exit 8`}
}

// floods writes 250 kB for each line that it reads.
func floods() sessionProgram {
	return sessionProgram{name: "floods", shell: `while read go; do i=0; while [ $i -lt 4000 ]; do echo "line $i of many lines of output, each of which is of some length"; i=$((i+1)); done; echo "flood $go"; done`}
}

func say(w io.Writer, words string) {
	if w != nil {
		_, _ = io.WriteString(w, words)
	}
}

// await waits for the size.
func await(ctx context.Context, s cri.Session) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case got, ok := <-s.Resize:
			if !ok || got == size {
				return ok && s.TTY
			}
		}
	}
}

// SessionSuiteScript plays the commands that [TestSessions] runs. A [Runtime] under test has it as Options.Script, and
// [SessionFixture.NoAttach]: the script does not play the processes of containers.
func SessionSuiteScript(*cri.ContainerConfig) Script {
	return Script{Session: func(ctx context.Context, cmd []string, s cri.Session) (int, error) {
		if len(cmd) < 4 {
			return 0, fmt.Errorf("command %q: no such program", cmd)
		}
		arg := func(i int) string {
			if 3+i < len(cmd) {
				return cmd[3+i]
			}
			return ""
		}
		for _, p := range sessionPrograms() {
			if p.name == cmd[3] && p.play != nil {
				return p.play(ctx, arg, s), nil
			}
		}
		return 0, fmt.Errorf("program %q is not one of the suite", cmd[3])
	}}
}
