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

// startAttach attaches a client in a goroutine.
func startAttach(t *testing.T, rt *process.Runtime, id string, s cri.Session) (done chan error, disconnect context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done = make(chan error, 1)
	go func() { done <- rt.RunAttach(ctx, id, s) }()
	return done, cancel
}

// Several clients receive the same output, and the log contains all of it, whether the clients read or not.
func TestRunAttach(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	c := shellConfig(`while read line; do echo "out $line"; echo "err $line" >&2; done; echo end; exit 5`)
	c.Stdin = true
	id := startContainer(t, rt, sandbox, c)

	var a, b, e outputBuffer
	firstIn, first := io.Pipe()
	done1, leave1 := startAttach(t, rt, id, cri.Session{Stdin: firstIn, Stdout: &a, Stderr: &e})
	done2, leave2 := startAttach(t, rt, id, cri.Session{Stdout: &b})
	defer leave2()
	// No event reports that the second client is attached, so the input is repeated.
	requireEventually(t, "both clients receive a line", func() bool {
		_, err := io.WriteString(first, "one\n")
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
		return strings.Contains(a.String(), "out one") && strings.Contains(e.String(), "err one") && strings.Contains(b.String(), "out one")
	})
	assert.NotContains(t, a.String(), "err")

	leave1()
	require.ErrorIs(t, <-done1, context.Canceled)
	first.Close()
	assert.Equal(t, cri.ContainerRunning, getContainer(t, rt, id).State, "stdin stays open for other clients")

	// The end of a client's stdin is not the end of the container's stdin.
	done3, leave3 := startAttach(t, rt, id, cri.Session{Stdin: strings.NewReader("two\n")})
	b.awaitText(t, "out two\n")
	leave3()
	require.ErrorIs(t, <-done3, context.Canceled)
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, <-done2)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F out two\n")
	assert.Contains(t, string(log), " stderr F err two\n")
}

// With StdinOnce the container's stdin ends with that of its first client.
func TestRunAttachStdinOnce(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	c := shellConfig(`cat; echo end; exit 5`)
	c.Stdin, c.StdinOnce = true, true
	id := startContainer(t, rt, sandbox, c)
	var out outputBuffer
	require.NoError(t, rt.RunAttach(t.Context(), id, cri.Session{Stdin: strings.NewReader("hello\n"), Stdout: &out}))
	assert.Equal(t, "hello\nend\n", out.String())
	assert.EqualValues(t, 5, awaitExit(t, rt, id).ExitCode)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F hello\n")
}

// A client without stdin does not close the container's stdin, even if it sends terminal sizes.
func TestClientWithoutStdinDoesNotCloseStdinOnce(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	c := shellConfig(`echo ready; cat; echo end`)
	c.Stdin, c.StdinOnce = true, true
	id := startContainer(t, rt, sandbox, c)
	done, disconnect := startAttach(t, rt, id, cri.Session{Stdout: io.Discard, Resize: make(chan cri.TerminalSize)})
	time.Sleep(50 * time.Millisecond) // time in which the client probably attaches
	disconnect()
	require.ErrorIs(t, <-done, context.Canceled)
	var out outputBuffer
	require.NoError(t, rt.RunAttach(t.Context(), id, cri.Session{Stdin: strings.NewReader("hello\n"), Stdout: &out}))
	assert.Contains(t, out.String(), "hello\nend\n")
}

// Clients of a container with a terminal but without stdin receive output and can resize the terminal; their input is not
// read.
func TestRunAttachTerminalWithoutStdin(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, _ := runPodSandbox(t, rt)
	c := shellConfig(`while [ "$(stty size)" != "30 100" ]; do sleep 0.02; done; echo sized; read line; echo "got $line"`)
	c.TTY = true
	id := startContainer(t, rt, sandbox, c)
	var screen outputBuffer
	sizes := make(chan cri.TerminalSize, 1)
	sizes <- cri.TerminalSize{Width: 100, Height: 30}
	done, disconnect := startAttach(t, rt, id, cri.Session{Stdin: strings.NewReader("typed\r"), Stdout: &screen, TTY: true, Resize: sizes})
	screen.awaitText(t, "sized\r\n")
	time.Sleep(50 * time.Millisecond)
	disconnect()
	require.ErrorIs(t, <-done, context.Canceled)
	assert.NotContains(t, screen.String(), "typed")
}

// The terminal of a container and of a command belongs to the container's user, also in a mount namespace.
func TestIntegrationTerminalOfUser(t *testing.T) {
	needRoot(t)
	rt := openWith(t, t.TempDir(), process.Options{Mounts: true})
	sandbox, logs := runPodSandbox(t, rt)
	script := `echo "$(id -u) $(stat -c %u "$(tty)")" > "$(tty)"`
	c := shellConfig(script + "; exec sleep 1000")
	c.TTY, c.Security.RunAsUser = true, new(int64(65534))
	id := startContainer(t, rt, sandbox, c)
	var out outputBuffer
	code, err := rt.RunExec(t.Context(), id, []string{"sh", "-c", script}, cri.Session{Stdout: &out, TTY: true})
	require.NoError(t, err)
	assert.Zero(t, code)
	assert.Equal(t, "65534 65534\r\n", out.String())
	requireEventually(t, "the log has the output of the terminal", func() bool {
		log, _ := os.ReadFile(filepath.Join(logs, "c.log"))
		return bytes.Contains(log, []byte(" stdout F 65534 65534\r\n"))
	})
}

// The log of a container with a terminal has the raw output; clients receive it, type and resize.
func TestRunAttachTerminal(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	c := shellConfig(`test -t 0 && test -t 1 && test -t 2 && echo "$TERM"; trap 'echo caught; exit 6' INT; echo error >&2
		while [ "$(stty size)" != "30 100" ]; do sleep 0.02; done; stty size; while :; do read line && echo "got $line"; done`)
	c.TTY, c.Stdin = true, true
	id := startContainer(t, rt, sandbox, c)
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	var screen outputBuffer
	sizes := make(chan cri.TerminalSize)
	done, disconnect := startAttach(t, rt, id, cri.Session{Stdin: stdin, Stdout: &screen, TTY: true, Resize: sizes})
	defer disconnect()
	sizes <- cri.TerminalSize{Width: 100, Height: 30}
	screen.awaitText(t, "30 100\r\n")
	_, err := keyboard.Write([]byte("typed\r"))
	require.NoError(t, err)
	screen.awaitText(t, "typed\r\ngot typed\r\n")
	_, err = keyboard.Write([]byte{3})
	require.NoError(t, err)
	require.NoError(t, <-done)
	assert.Contains(t, screen.String(), "caught\r\n")
	assert.EqualValues(t, 6, awaitExit(t, rt, id).ExitCode)
	log, err := os.ReadFile(filepath.Join(logs, "c.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), " stdout F xterm\r\n")
	assert.Contains(t, string(log), " stdout F error\r\n")
	assert.NotContains(t, string(log), " stderr ")
}

// A client that does not read is disconnected with an error: neither the container nor its log nor another client waits.
func TestRunAttachDisconnectsClientThatNeverReads(t *testing.T) {
	rt := openRuntime(t, t.TempDir())
	sandbox, logs := runPodSandbox(t, rt)
	c := shellConfig(`while read word; do test "$word" = wait || seq 1 30000; echo "end $word"; done`)
	c.Stdin = true
	id := startContainer(t, rt, sandbox, c)
	began, block := make(chan struct{}, 1), make(chan struct{})
	blocked, leave1 := startAttach(t, rt, id, cri.Session{Stdout: stuckWriter{began, block}})
	defer leave1()
	var out outputBuffer
	stdin, keyboard := io.Pipe()
	defer keyboard.Close()
	other, leave2 := startAttach(t, rt, id, cri.Session{Stdin: stdin, Stdout: &out})
	defer leave2()
	requireEventually(t, "both clients are attached", func() bool {
		_, err := io.WriteString(keyboard, "wait\n")
		require.NoError(t, err)
		return len(began) == 1 && strings.Contains(out.String(), "wait")
	})
	for i := range 12 { // one write at a time, so that the reading client does not fall behind on a busy machine
		_, err := fmt.Fprintln(keyboard, i)
		require.NoError(t, err)
		out.awaitText(t, fmt.Sprintf("\n30000\nend %d\n", i))
	}
	requireEventually(t, "the log has the complete output", func() bool {
		log, _ := os.ReadFile(filepath.Join(logs, "c.log"))
		return bytes.Contains(log, []byte(" stdout F end 11\n"))
	})
	close(block)
	require.ErrorContains(t, <-blocked, "disconnected")
	require.NoError(t, rt.StopContainer(t.Context(), id, 0))
	require.NoError(t, <-other)
}

type stuckWriter struct{ began, until chan struct{} }

func (s stuckWriter) Write(p []byte) (int, error) {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.until
	return len(p), nil
}
