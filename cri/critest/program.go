// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// program is a shell script that a container of the suite runs on a real runtime. Its name and its arguments become $0, $1 and so
// on, from which SuiteScript recognises it.
type program struct {
	name  string
	shell string
	args  []string
}

// exitsOnTERM returns a program that prints "ready". It exits with this code when it receives SIGTERM.
func exitsOnTERM(code int) program {
	return program{
		name:  "forever",
		shell: `trap 'kill $! 2>/dev/null; exit "$1"' TERM; echo ready; while :; do sleep 5 & wait $!; done`,
		args:  []string{strconv.Itoa(code)},
	}
}

// exitsAfter returns a program that exits with this code after the delay.
func exitsAfter(delay time.Duration, code int) program {
	return program{
		name:  "exits",
		shell: `sleep "$1"; exit "$2"`,
		args:  []string{fmt.Sprintf("%g", delay.Seconds()), strconv.Itoa(code)},
	}
}

// ignoresTERM returns a program that ignores SIGTERM.
func ignoresTERM() program {
	return program{
		name:  "stubborn",
		shell: `trap '' TERM; echo ready; while :; do sleep 1; done`,
	}
}

// killsItself returns a program that sends itself the signal. It must share the host's PID namespace.
func killsItself(signal int) program {
	return program{
		// process 1 of a PID namespace does not receive signals from inside
		name:  "signals",
		shell: `kill -"$1" $$; sleep 60`,
		args:  []string{strconv.Itoa(signal)},
	}
}

// leavesChild returns a program that exits on SIGTERM. Its child process survives: it ignores SIGTERM and continues to print.
func leavesChild() program {
	return program{
		name:  "forks",
		shell: `(trap '' TERM; while :; do echo tick; sleep 0.05; done) & trap 'exit 0' TERM; echo ready; wait`,
	}
}

// printsNumbers returns a program that prints increasing numbers, starting with 0.
func printsNumbers() program {
	return program{
		name:  "counts",
		shell: `trap 'exit 0' TERM; echo ready; i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done`,
	}
}

// printsLines returns a program that prints test lines to stdout and stderr, one of which runtimes split into several log
// entries.
func printsLines() program {
	return program{
		name:  "prints",
		shell: `echo out 1; echo err 1 >&2; echo; echo "$CRITEST $1"; head -c 50000 /dev/zero | tr '\0' x; echo end`,
		args:  []string{"argument"},
	}
}

// printsAndExits returns a command for ExecSync that prints to stdout and stderr and exits with this code.
func printsAndExits(code int) program {
	return program{
		name:  "answers",
		shell: `echo out; echo err >&2; exit "$1"`,
		args:  []string{strconv.Itoa(code)},
	}
}

// runsForever returns a command for ExecSync that does not exit. Its command line contains the text mark, by which
// [findsProcess] finds it.
func runsForever(mark string) program {
	return program{name: "lingers", shell: `while :; do sleep 1; done`, args: []string{mark}}
}

// findsProcess returns a command for ExecSync that succeeds if a process has the text in its command line.
func findsProcess(mark string) program {
	return program{
		name:  "finds",
		shell: `grep -qs "$1" /proc/[0-9]*/cmdline`,
		// a pattern that does not match its own command line
		args: []string{"[" + mark[:1] + "]" + mark[1:]},
	}
}

// noProgram is the path of a program that does not exist.
const noProgram = "/does/not/exist"

// argv returns the command line that runs the program with this shell.
func (p program) argv(shell string) []string {
	return append([]string{shell, "-c", p.shell, p.name}, p.args...)
}

// SuiteScript returns the [Script] that simulates a program of the [TestRuntime] suite. Use it as Options.Script of a
// [Runtime] that TestRuntime tests.
func SuiteScript(config *cri.ContainerConfig) Script {
	if len(config.Command) > 0 && config.Command[0] == noProgram {
		return FailStart(fs.ErrNotExist)
	}
	name, arg := suiteProgram(config.Command)
	s := Script{Exec: suiteExec}
	switch name {
	case "forever":
		s.Stop = &Exit{Code: int32(parseNumber(arg(1)))}
	case "exits":
		s.Exit = &Exit{After: time.Duration(parseNumber(arg(1)) * float64(time.Second)), Code: int32(parseNumber(arg(2)))}
	case "stubborn":
		s.Stop = &Exit{After: Never}
	case "signals":
		s.Exit = &Exit{Code: 128 + int32(parseNumber(arg(1)))}
	case "forks":
		s.Stop = &Exit{}
	case "prints":
		s.Exit = &Exit{}
	}
	return s
}

// suiteExec simulates the commands that the TestRuntime suite runs with ExecSync.
func suiteExec(ctx context.Context, cmd []string) (cri.ExecResult, error) {
	name, arg := suiteProgram(cmd)
	switch name {
	case "answers":
		return cri.ExecResult{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: int(parseNumber(arg(1)))}, nil
	case "lingers":
		<-ctx.Done()
		return cri.ExecResult{}, ctx.Err()
	case "finds":
		return cri.ExecResult{ExitCode: 1}, nil // the process was killed with its context
	}
	return cri.ExecResult{}, nil
}

// suiteProgram returns the name and arguments, counted from 1, of the suite program in a command line of program.argv.
func suiteProgram(argv []string) (name string, arg func(int) string) {
	if len(argv) < 4 {
		return "", nil
	}
	return argv[3], func(i int) string {
		if 3+i < len(argv) {
			return argv[3+i]
		}
		return ""
	}
}

// parseNumber parses a number in a program's arguments, and returns 0 on error.
func parseNumber(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}
