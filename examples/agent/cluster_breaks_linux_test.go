// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// liveStreams has an open stream of each kind.
type liveStreams struct {
	exec, attach, logs *session
	forward            net.Conn // through a kubectl port-forward
}

// startStreams starts a stream of each kind with pod web. Its container main has a terminal, and its container log prints
// from time to time.
func (d dialect) startStreams(t *testing.T, port string) liveStreams {
	t.Helper()
	var b liveStreams
	var line string
	b.exec, line = d.startSession(t, "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "echo begun; exec sleep 3600")
	require.Equal(t, "begun", line)
	b.attach = d.attach(t)
	b.logs, _ = d.startSession(t, "logs", "-f", "web", "-c", "log")
	b.forward = d.openForward(t, port)
	return b
}

// attach attaches to the shell of pod web and waits for its first output.
func (d dialect) attach(t *testing.T) *session {
	t.Helper()
	s := &session{cmd: d.command(within(t, timeout), "attach", "-i", "web", "-c", "main")}
	stdin, err := s.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.cmd.Stderr, s.out = &s.errs, bufio.NewReader(stdout)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	_, err = io.WriteString(stdin, "echo $((6*7))nd\n")
	require.NoError(t, err)
	for line := ""; !strings.Contains(line, "42nd"); {
		line, err = s.out.ReadString('\n')
		require.NoError(t, err, "%s", &s.errs)
	}
	return s
}

// openForward forwards a port, and reads the first line of a page over a connection that stays open.
func (d dialect) openForward(t *testing.T, port string) net.Conn {
	t.Helper()
	_, local, _ := d.startForward(t, "web", port)
	conn, err := net.Dial("tcp", "127.0.0.1:"+local[port])
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(timeout)))
	_, err = io.WriteString(conn, "GET /index.html HTTP/1.1\r\nHost: web\r\n\r\n")
	require.NoError(t, err)
	head, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, head, "200")
	return conn
}

// awaitClosed waits until the client of each stream has exited, and the connection through the port-forward is closed.
func (b liveStreams) awaitClosed(t *testing.T) {
	t.Helper()
	for name, s := range map[string]*session{"exec": b.exec, "attach": b.attach, "logs": b.logs} {
		if s == nil {
			continue
		}
		took, code, text := s.wait() // the deadline of the command ends a stream that is not closed
		t.Logf("%s: closed after %v, %d, %q", name, took, code, text)
		assert.Less(t, took, timeout/2, name)
	}
	began := time.Now()
	_, err := io.Copy(io.Discard, b.forward)
	if err != nil { // a reset, not the deadline
		assert.NotContains(t, err.Error(), "i/o timeout", "port-forward")
	}
	t.Logf("port-forward: the connection was closed after %v", time.Since(began))
}

// awaitNewStreams waits until a new request of each kind works.
func (d dialect) awaitNewStreams(t *testing.T, port string) {
	t.Helper()
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "exec", "web", "-c", "log", "--", "echo", "back"); a.out != "back\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	attached := d.attach(t)
	require.NoError(t, attached.cmd.Process.Kill())
	_ = attached.cmd.Wait()
	require.Contains(t, d.run("", "logs", "web", "-c", "log", "--tail=1").out, "trouble")
	_ = d.openForward(t, port)
}

// containerStates returns the IDs and restart counts of the containers of pod web.
func (d dialect) containerStates() string {
	d.t.Helper()
	return d.do("get", "pod", "web", "-o", `jsonpath={range .status.containerStatuses[*]}{.name} {.containerID} {.restartCount}{"\n"}{end}`)
}

// checkAgentKill kills the agent during a stream of each kind. The clients see the end of their streams, no container is
// affected, and a restarted agent serves new streams.
func (d dialect) checkAgentKill(t *testing.T, port string) {
	before := d.containerStates()
	b := d.startStreams(t, port)
	d.agent.Kill()
	b.awaitClosed(t)
	d.restart() // the new agent runs until the whole test ends
	d.forTest(t).awaitNewStreams(t, port)
	require.Equal(t, before, d.containerStates())
}

// checkRuntimeKill kills the runtime during a stream of each kind, and restarts it. Within seconds the clients see the end
// of the streams through the runtime. Logs are read from a file and continue.
func (d dialect) checkRuntimeKill(t *testing.T, port string) {
	before := d.containerStates()
	b := d.startStreams(t, port)
	require.NoError(t, d.lab.Kill(within(t, timeout)))
	b.logs = nil
	b.awaitClosed(t)
	require.NoError(t, d.lab.Restart(within(t, 2*timeout)))
	d.forTest(t).awaitNewStreams(t, port)
	require.Equal(t, before, d.containerStates())
}
