// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package exetest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the program in testdata, which behaves as its argument says.
var program exetest.Program

func TestMain(m *testing.M) {
	if err := os.Chdir("testdata"); err != nil {
		panic(err)
	}
	os.Exit(program.Main(m))
}

func TestProcess(t *testing.T) {
	p := program.Start(t, "print", "one two", "three four")
	require.Equal(t, "three four\n", p.AwaitLine(10*time.Second, "four", "three"))
	require.Equal(t, 3, p.Wait(10*time.Second))
	require.Equal(t, "one two\nthree four\n", p.Output(), "Output is complete after Wait")
}

func TestTerminateAndKill(t *testing.T) {
	p := program.Start(t, "wait")
	p.AwaitLine(10*time.Second, "waiting")
	require.Equal(t, 4, p.Terminate(10*time.Second))
	p.Kill() // no effect: the process has exited

	p = program.Start(t, "wait")
	p.AwaitLine(10*time.Second, "waiting")
	p.Kill()
	require.Equal(t, -1, p.Wait(10*time.Second))
}

// failing is a testing.TB that records failures and cleanups.
type failing struct {
	testing.TB

	messages string
	cleanups []func()
}

func (f *failing) Helper()          {}
func (f *failing) Failed() bool     { return false }
func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *failing) Errorf(format string, args ...any) {
	f.messages += fmt.Sprintf(format, args...)
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// collectFailures calls run with a failing testing.TB, and returns the recorded messages.
func collectFailures(t *testing.T, run func(t testing.TB)) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	for _, c := range f.cleanups {
		c()
	}
	return f.messages
}

func TestFailures(t *testing.T) {
	for want, run := range map[string]func(t testing.TB){
		`after 250ms: no line with ["coming"]`: func(t testing.TB) {
			program.Start(t, "wait").AwaitLine(50*time.Millisecond, "coming")
		},
		"the program does not exit within 250ms": func(t testing.TB) {
			program.Start(t, "wait").Wait(50 * time.Millisecond)
		},
		"the program has a data race:\nWARNING: DATA RACE\n": func(t testing.TB) {
			program.Start(t, "print", "WARNING: DATA RACE").Wait(10 * time.Second)
		},
	} {
		require.Equal(t, want, collectFailures(t, run))
	}
}

// A child process that holds the output open does not block the test.
func TestWaitWithRemainingChild(t *testing.T) {
	begun := time.Now()
	p := program.Start(t, "leave", "60")
	require.Zero(t, p.Wait(20*time.Second))
	require.Less(t, time.Since(begun), time.Minute)
}

func TestDir(t *testing.T) {
	d := exetest.NewDir(t)
	d.Write("default/web.yaml", "a")
	d.Write("default/web.yaml", "b")
	content, err := os.ReadFile(filepath.Join(d.Path, "default", "web.yaml"))
	require.NoError(t, err)
	require.Equal(t, "b", string(content))
	d.Remove("default/web.yaml")
	left, err := os.ReadDir(filepath.Join(d.Path, "default"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// The port stays free for restarts of a program, although the kernel assigns ephemeral ports.
func TestFreePortStaysFree(t *testing.T) {
	address := fmt.Sprint("127.0.0.1:", exetest.FreePort(t))
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		require.NotEqual(t, address, l.Addr().String())
	}
	for range 2 {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}
