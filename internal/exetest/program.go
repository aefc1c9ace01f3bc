// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
)

// BuiltEnv is an environment variable with the path of a program that is built already, for slow virtual machines in which the go
// command would take minutes.
const BuiltEnv = "NODEAGENT_PROGRAM"

// Program is the main package of the working directory. The zero value is ready for use.
type Program struct {
	once sync.Once
	dir  string // directory of the built program
	path string
	err  error
}

// Main runs the tests of m, removes the executable that [Program.Start] has built, and returns the exit code of the tests.
// Call it in TestMain.
func (p *Program) Main(m *testing.M) int {
	code := m.Run()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	return code
}

// Start runs the program with args. The first call builds the program. When the test ends, the process is killed. The test
// fails if the race detector has reported a race in the program.
func (p *Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	p.once.Do(p.buildProgram)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return startProcess(t, exec.Command(p.path, args...))
}

func (p *Program) buildProgram() {
	if p.path = os.Getenv(BuiltEnv); p.path != "" {
		return
	}
	if p.dir, p.err = os.MkdirTemp("", "exetest"); p.err != nil {
		return
	}
	p.path = filepath.Join(p.dir, "program")
	args := []string{"build", "-buildvcs=false", "-o", p.path}
	if isRaceEnabled() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		p.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}

// isRaceEnabled reports whether the test was built with the race detector.
func isRaceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
