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

// sessionProgram is a shell script that TestSessions runs, and the Go function that plays it on a [Runtime].
type sessionProgram struct {
	name  string
	shell string
	args  []string
	play  func(ctx context.Context, arg func(int) string, s cri.Session) int
}

func (p sessionProgram) argv() []string {
	return append([]string{"/bin/sh", "-c", p.shell, p.name}, p.args...)
}

// terminalSize is the terminal size that the suite sets.
var terminalSize = cri.TerminalSize{Width: 77, Height: 33} //nolint:gochecknoglobals // a constant

const awaitSize = `while [ "$(stty size 2>/dev/null)" != "33 77" ]; do sleep 0.02; done; `

// sessionPrograms returns all programs of the session suite, so that a caller can search them by name. Their arguments are
// placeholders.
func sessionPrograms() []sessionProgram {
	return []sessionProgram{sleepsUntilTERM(), printsToBothStreams(0), copiesStdin(), printsBytes(0), checksTerminal(), runsForeverWithChild(""), echoesLines(), copiesStdinOnce(), echoesTypedLines(), printsFloods()}
}

// sleepsUntilTERM returns a program that prints nothing and exits on SIGTERM.
func sleepsUntilTERM() sessionProgram {
	return sessionProgram{name: "sleeps", shell: `trap 'exit 0' TERM; while :; do sleep 1; done`, play: func(ctx context.Context, _ func(int) string, _ cri.Session) int {
		_ = Hang(ctx)
		return 137
	}}
}

// printsToBothStreams returns a program that prints to stdout and stderr and exits with this code.
func printsToBothStreams(code int) sessionProgram {
	return sessionProgram{name: "both", shell: `echo out; echo err >&2; exit "$1"`, args: []string{strconv.Itoa(code)}, play: func(_ context.Context, arg func(int) string, s cri.Session) int {
		writeString(s.Stdout, "out\n")
		writeString(s.Stderr, "err\n")
		code, _ := strconv.Atoi(arg(1))
		return code
	}}
}

// copiesStdin returns a program that copies stdin to stdout. At the end of stdin it prints "end" to stderr and exits.
func copiesStdin() sessionProgram {
	return sessionProgram{name: "copies", shell: `cat; echo end >&2`, play: func(_ context.Context, _ func(int) string, s cri.Session) int {
		if s.Stdin != nil {
			_, _ = io.Copy(s.Stdout, s.Stdin)
		}
		writeString(s.Stderr, "end\n")
		return 0
	}}
}

// printsBytes returns a program that prints n bytes to stdout and exits.
func printsBytes(n int) sessionProgram {
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

// checksTerminal returns a program that waits until its terminal has terminalSize. It then prints "terminal" if stdin, stdout and
// stderr are terminals.
func checksTerminal() sessionProgram {
	return sessionProgram{name: "onTerminal", shell: awaitSize + `test -t 0 && test -t 1 && test -t 2 && echo terminal; echo err >&2; exit 5`, play: func(ctx context.Context, _ func(int) string, s cri.Session) int {
		if awaitTerminalSize(ctx, s) {
			writeString(s.Stdout, "terminal\r\nerr\r\n")
		}
		return 5
	}}
}

// runsForeverWithChild returns a program that starts a child process and does not exit. The command lines of program and
// child contain the text mark.
func runsForeverWithChild(mark string) sessionProgram {
	return sessionProgram{name: "lingers", shell: `(while :; do sleep 1; done) & echo ready; while :; do sleep 1; done`, args: []string{mark}, play: func(ctx context.Context, _ func(int) string, s cri.Session) int {
		writeString(s.Stdout, "ready\n")
		_ = Hang(ctx)
		return 137
	}}
}

// echoesLines returns a program that prints each line of stdin to stdout and stderr. It exits after the line "end".
func echoesLines() sessionProgram {
	return sessionProgram{name: "lines", shell: `while read line && [ "$line" != end ]; do echo "out $line"; echo "err $line" >&2; done; echo bye; exit 6`}
}

// copiesStdinOnce returns a program that copies stdin to stdout. At the end of stdin it prints "end" and exits with code 7.
func copiesStdinOnce() sessionProgram {
	return sessionProgram{name: "once", shell: `cat; echo end; exit 7`}
}

// echoesTypedLines returns a program that waits until its terminal has terminalSize, and then echoes each input line. It exits
// after the line "end".
func echoesTypedLines() sessionProgram {
	return sessionProgram{name: "typed", shell: awaitSize + `while read line && [ "$line" != end ]; do echo "got $line" >&2; done; echo bye; exit 8`}
}

// printsFloods returns a program that prints 250 kB for each line of its input.
func printsFloods() sessionProgram {
	return sessionProgram{name: "floods", shell: `while read go; do i=0; while [ $i -lt 4000 ]; do echo "line $i of many lines of output, each of which is of some length"; i=$((i+1)); done; echo "flood $go"; done`}
}

func writeString(w io.Writer, words string) {
	if w != nil {
		_, _ = io.WriteString(w, words)
	}
}

// awaitTerminalSize waits until the client sets terminalSize, and reports whether it did and the session has a TTY.
func awaitTerminalSize(ctx context.Context, session cri.Session) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case got, ok := <-session.Resize:
			if !ok || got == terminalSize {
				return ok && session.TTY
			}
		}
	}
}

// SessionSuiteScript returns the [Script] that simulates the commands of [TestSessions]. Use it as Options.Script of a
// [Runtime] that TestSessions tests. Set [SessionFixture.NoAttach] too, because the main programs of the containers are not
// simulated.
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
