// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// attach attaches a client in the background.
func attach(t *testing.T, rt *process.Runtime, id string, s cri.Session) (done chan error, leave context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done = make(chan error, 1)
	go func() { done <- rt.RunAttach(ctx, id, s) }()
	return done, cancel
}

// Several clients see the same, and the log has all of it, whether they read or not.
func TestRunAttach(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, logs := pod(t, rt)
	c := shell(`while read line; do echo "out $line"; echo "err $line" >&2; done; echo end; exit 5`)
	c.Stdin = true
	id := start(t, rt, sandbox, c)

	var a, b, e text
	firstIn, first := io.Pipe()
	done1, leave1 := attach(t, rt, id, cri.Session{Stdin: firstIn, Stdout: &a, Stderr: &e})
	done2, leave2 := attach(t, rt, id, cri.Session{Stdout: &b})
	defer leave2()
	// Nobody knows when the second is attached: until it is, it is told again.
	eventually(t, "both get lines", func() bool {
		_, err := io.WriteString(first, "one\n")
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		return strings.Contains(a.String(), "out one") && strings.Contains(e.String(), "err one") && strings.Contains(b.String(), "out one")
	})
	assert.NotContains(t, a.String(), "err")

	leave1()
	require.ErrorIs(t, <-done1, context.Canceled)
	first.Close()
	assert.Equal(t, cri.ContainerRunning, get(t, rt, id).State, "stdin stays open for other clients")

	// The end of a client's stdin is not that of the container's.
	done3, leave3 := attach(t, rt, id, cri.Session{Stdin: strings.NewReader("two\n")})
	b.awaits(t, "out two\n")
	leave3()
	require.ErrorIs(t, <-done3, context.Canceled)
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, <-done2)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F out two\n")
	assert.Contains(t, string(log), " stderr F err two\n")
}

// With stdinOnce the container's stdin ends with that of its first client.
func TestRunAttachStdinOnce(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, logs := pod(t, rt)
	c := shell(`cat; echo end; exit 5`)
	c.Stdin, c.StdinOnce = true, true
	id := start(t, rt, sandbox, c)
	var out text
	require.NoError(t, rt.RunAttach(t.Context(), id, cri.Session{Stdin: strings.NewReader("hello\n"), Stdout: &out}))
	assert.Equal(t, "hello\nend\n", out.String())
	assert.EqualValues(t, 5, exited(t, rt, id).ExitCode)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F hello\n")
}

// A client without stdin, whatever it says of sizes, is none that ends the container's stdin.
func TestRunAttachStdinOnceOfOthers(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, _ := pod(t, rt)
	c := shell(`echo ready; cat; echo end`)
	c.Stdin, c.StdinOnce = true, true
	id := start(t, rt, sandbox, c)
	done, leave := attach(t, rt, id, cri.Session{Stdout: io.Discard, Resize: make(chan cri.TerminalSize)})
	time.Sleep(50 * time.Millisecond) // attached, most likely
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	var out text
	require.NoError(t, rt.RunAttach(t.Context(), id, cri.Session{Stdin: strings.NewReader("hello\n"), Stdout: &out}))
	assert.Contains(t, out.String(), "hello\nend\n")
}

// A container that has a terminal and no stdin is shown and resized, and what a client types is not read.
func TestRunAttachTerminalWithoutStdin(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, _ := pod(t, rt)
	c := shell(`while [ "$(stty size)" != "30 100" ]; do sleep 0.02; done; echo sized; read line; echo "got $line"`)
	c.TTY = true
	id := start(t, rt, sandbox, c)
	var screen text
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- cri.TerminalSize{Width: 100, Height: 30}
	done, leave := attach(t, rt, id, cri.Session{Stdin: strings.NewReader("typed\r"), Stdout: &screen, TTY: true, Resize: sizes})
	screen.awaits(t, "sized\r\n")
	time.Sleep(50 * time.Millisecond)
	leave()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NotContains(t, screen.String(), "typed")
}

// A terminal belongs to the user of the container, also in a mount namespace, for commands and the container itself.
func TestIntegrationTerminalOfUser(t *testing.T) {
	needRoot(t)
	rt := openWith(t, t.TempDir(), process.Options{Mounts: true})
	sandbox, logs := pod(t, rt)
	script := `echo "$(id -u) $(stat -c %u "$(tty)")" > "$(tty)"`
	c := shell(script + "; exec sleep 1000")
	c.TTY, c.Security.RunAsUser = true, new(int64(65534))
	id := start(t, rt, sandbox, c)
	var out text
	code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", script}, cri.Session{Stdout: &out, TTY: true})
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "65534 65534\r\n", out.String())
	eventually(t, "the log has the same", func() bool {
		log, _ := os.ReadFile(filepath.Join(logs, "c.log"))
		return bytes.Contains(log, []byte(" stdout F 65534 65534\r\n"))
	})
}

// A container with a terminal: its log has what the terminal got, raw; clients see it, type and resize.
func TestRunAttachTerminal(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, logs := pod(t, rt)
	c := shell(`test -t 0 && test -t 1 && test -t 2 && echo "$TERM"; trap 'echo caught; exit 6' INT; echo error >&2
		while [ "$(stty size)" != "30 100" ]; do sleep 0.02; done; stty size; while :; do read line && echo "got $line"; done`)
	c.TTY, c.Stdin = true, true
	id := start(t, rt, sandbox, c)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var screen text
	sizes := make(chan cri.TerminalSize)
	done, leave := attach(t, rt, id, cri.Session{Stdin: stdin, Stdout: &screen, TTY: true, Resize: sizes})
	defer leave()
	sizes <- cri.TerminalSize{Width: 100, Height: 30}
	screen.awaits(t, "30 100\r\n")
	_, err := keyboard.Write([]byte("typed\r"))
	require.NoError(t, err)
	screen.awaits(t, "typed\r\ngot typed\r\n")
	_, err = keyboard.Write([]byte{3})
	require.NoError(t, err)
	require.NoError(t, <-done)
	assert.Contains(t, screen.String(), "caught\r\n")
	assert.EqualValues(t, 6, exited(t, rt, id).ExitCode)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F xterm\r\n")
	assert.Contains(t, string(log), " stdout F error\r\n")
	assert.NotContains(t, string(log), " stderr ")
}

// A client that does not read is left behind with an error: neither the container nor its log nor another client waits.
func TestRunAttachClientThatNeverReads(t *testing.T) {
	rt := open(t, t.TempDir())
	sandbox, logs := pod(t, rt)
	c := shell(`while read word; do test "$word" = wait || seq 1 30000; echo "end $word"; done`)
	c.Stdin = true
	id := start(t, rt, sandbox, c)
	began, block := make(chan struct{}, 1), make(chan struct{})
	blocked, leave1 := attach(t, rt, id, cri.Session{Stdout: stuck{began, block}})
	defer leave1()
	var out text
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	other, leave2 := attach(t, rt, id, cri.Session{Stdin: stdin, Stdout: &out})
	defer leave2()
	eventually(t, "both are attached", func() bool {
		_, err := io.WriteString(keyboard, "wait\n")
		require.NoError(t, err)
		return len(began) == 1 && strings.Contains(out.String(), "wait")
	})
	for i := range 12 { // one after the other, so that on a busy machine the other client is not left behind too
		_, err := fmt.Fprintln(keyboard, i)
		require.NoError(t, err)
		out.awaits(t, fmt.Sprintf("\n30000\nend %d\n", i))
	}
	eventually(t, "the log has all of it", func() bool {
		log, _ := os.ReadFile(filepath.Join(logs, "c.log"))
		return bytes.Contains(log, []byte(" stdout F end 11\n"))
	})
	close(block)
	require.ErrorContains(t, <-blocked, "left behind")
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, <-other)
}

type stuck struct{ began, until chan struct{} }

func (s stuck) Write(p []byte) (int, error) {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.until
	return len(p), nil
}
