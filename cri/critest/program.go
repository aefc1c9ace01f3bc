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

// program is what a container of the suite runs: a shell script for real runtimes. Its name and arguments are the
// shell's $0, $1 and so on, where SuiteScript finds them.
type program struct {
	name  string
	shell string
	args  []string
}

// forever prints "ready" and exits with a code when it is told to stop.
func forever(onTERM int) program {
	return program{
		name:  "forever",
		shell: `trap 'kill $! 2>/dev/null; exit "$1"' TERM; echo ready; while :; do sleep 5 & wait $!; done`,
		args:  []string{strconv.Itoa(onTERM)},
	}
}

// exits ends by itself with a code.
func exits(after time.Duration, code int) program {
	return program{
		name:  "exits",
		shell: `sleep "$1"; exit "$2"`,
		args:  []string{fmt.Sprintf("%g", after.Seconds()), strconv.Itoa(code)},
	}
}

// stubborn ignores the stop signal.
func stubborn() program {
	return program{
		name:  "stubborn",
		shell: `trap '' TERM; echo ready; while :; do sleep 1; done`,
	}
}

// signals sends itself a signal. It must share the host's PID namespace: in its own it would be process 1, which
// is deaf to signals from inside.
func signals(n int) program {
	return program{
		name:  "signals",
		shell: `kill -"$1" $$; sleep 60`,
		args:  []string{strconv.Itoa(n)},
	}
}

// forks leaves a child behind that prints for ever and ignores the stop signal.
func forks() program {
	return program{
		name:  "forks",
		shell: `(trap '' TERM; while :; do echo tick; sleep 0.05; done) & trap 'exit 0' TERM; echo ready; wait`,
	}
}

// counts prints numbers, beginning with 0.
func counts() program {
	return program{
		name:  "counts",
		shell: `trap 'exit 0' TERM; echo ready; i=0; while :; do echo $i; i=$((i+1)); sleep 0.02; done`,
	}
}

// prints writes lines that a log must show: on both streams, an empty one, a variable of the config, and at last
// one that is longer than any runtime keeps in one piece.
func prints() program {
	return program{
		name:  "prints",
		shell: `echo out 1; echo err 1 >&2; echo; echo "$CRITEST $1"; head -c 50000 /dev/zero | tr '\0' x; echo end`,
		args:  []string{"argument"},
	}
}

// answers is a command for ExecSync that writes to both streams and fails.
func answers(code int) program {
	return program{
		name:  "answers",
		shell: `echo out; echo err >&2; exit "$1"`,
		args:  []string{strconv.Itoa(code)},
	}
}

// lingers is a command for ExecSync that does not end. Its mark is on its command line.
func lingers(mark string) program {
	return program{name: "lingers", shell: `while :; do sleep 1; done`, args: []string{mark}}
}

// finds is a command for ExecSync that succeeds while a process has the mark on its command line. The brackets make
// a pattern of it that does not find itself.
func finds(mark string) program {
	return program{
		name:  "finds",
		shell: `grep -qs "$1" /proc/[0-9]*/cmdline`,
		args:  []string{"[" + mark[:1] + "]" + mark[1:]},
	}
}

// noProgram is the path of a program that does not exist.
const noProgram = "/does/not/exist"

// argv returns the program as a command.
func (p program) argv(shell string) []string {
	return append([]string{shell, "-c", p.shell, p.name}, p.args...)
}

// SuiteScript plays the programs that [TestRuntime] runs. A [Runtime] that is tested has it as Options.Script.
func SuiteScript(c *cri.ContainerConfig) Script {
	if len(c.Command) > 0 && c.Command[0] == noProgram {
		return FailStart(fs.ErrNotExist)
	}
	name, arg := suiteProgram(c.Command)
	s := Script{Exec: suiteExec}
	switch name {
	case "forever":
		s.Stop = &Exit{Code: int32(number(arg(1)))}
	case "exits":
		s.Exit = &Exit{After: time.Duration(number(arg(1)) * float64(time.Second)), Code: int32(number(arg(2)))}
	case "stubborn":
		s.Stop = &Exit{After: Never}
	case "signals":
		s.Exit = &Exit{Code: 128 + int32(number(arg(1)))}
	case "forks":
		s.Stop = &Exit{}
	case "prints":
		s.Exit = &Exit{}
	}
	return s
}

// suiteExec answers the commands that the suite runs inside containers.
func suiteExec(ctx context.Context, cmd []string) (cri.ExecResult, error) {
	name, arg := suiteProgram(cmd)
	switch name {
	case "answers":
		return cri.ExecResult{Stdout: []byte("out\n"), Stderr: []byte("err\n"), ExitCode: int(number(arg(1)))}, nil
	case "lingers":
		<-ctx.Done()
		return cri.ExecResult{}, ctx.Err()
	case "finds":
		return cri.ExecResult{ExitCode: 1}, nil // what lingered is gone with its context
	}
	return cri.ExecResult{}, nil
}

// suiteProgram returns the name and the arguments of a command made by argv.
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

// number reads an argument that the suite wrote itself.
func number(s string) float64 {
	n, _ := strconv.ParseFloat(s, 64)
	return n
}
