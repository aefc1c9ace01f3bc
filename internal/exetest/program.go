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

// BuiltEnv is the environment variable that names a build of the program to use instead of a new one, for kernels in which the go
// command takes minutes.
const BuiltEnv = "NODEAGENT_PROGRAM"

// Program is the main package of the working directory. The zero value is ready for use.
type Program struct {
	once sync.Once
	dir  string // holds what was built
	path string
	err  error
}

// Main runs the tests and removes what was built for them. It returns the exit code, for TestMain.
func (p *Program) Main(m *testing.M) int {
	code := m.Run()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
	return code
}

// Start runs the program with arguments. It is killed when the test ends, if it still runs, and the test fails if the
// race detector found anything in it.
func (p *Program) Start(t testing.TB, args ...string) *Process {
	t.Helper()
	p.once.Do(p.build)
	if p.err != nil {
		t.Fatal(p.err)
	}
	return start(t, exec.Command(p.path, args...))
}

func (p *Program) build() {
	if p.path = os.Getenv(BuiltEnv); p.path != "" {
		return
	}
	if p.dir, p.err = os.MkdirTemp("", "exetest"); p.err != nil {
		return
	}
	p.path = filepath.Join(p.dir, "program")
	args := []string{"build", "-buildvcs=false", "-o", p.path}
	if watched() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		p.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}

// watched reports whether the test was built with the race detector.
func watched() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
