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

// broken is a stream of each kind that is under way.
type broken struct {
	exec, attach, logs *session
	forward            net.Conn // through a kubectl port-forward
}

// breakable begins a stream of each kind with pod web, whose container main has a terminal and log writes now and then.
func (d dialect) breakable(t *testing.T, port string) broken {
	t.Helper()
	var b broken
	var line string
	b.exec, line = d.begin(t, "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "echo begun; exec sleep 3600")
	require.Equal(t, "begun", line)
	b.attach = d.attach(t)
	b.logs, _ = d.begin(t, "logs", "-f", "web", "-c", "log")
	b.forward = d.forwarding(t, port)
	return b
}

// attach attaches to the shell of pod web, which has answered.
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

// forwarding forwards a port, and reads the head of a page by a connection that stays open.
func (d dialect) forwarding(t *testing.T, port string) net.Conn {
	t.Helper()
	_, local, _ := d.forward(t, "web", port)
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

// told waits until the client of each stream has ended, or for a port-forward its connection has.
func (b broken) told(t *testing.T) {
	t.Helper()
	for name, s := range map[string]*session{"exec": b.exec, "attach": b.attach, "logs": b.logs} {
		if s == nil {
			continue
		}
		took, code, text := s.wait() // the deadline of the command ends what is not told
		t.Logf("%s: told after %v, %d, %q", name, took, code, text)
		assert.Less(t, took, timeout/2, name)
	}
	began := time.Now()
	_, err := io.Copy(io.Discard, b.forward)
	if err != nil { // a reset, not the deadline
		assert.NotContains(t, err.Error(), "i/o timeout", "port-forward")
	}
	t.Logf("port-forward: its connection ended after %v", time.Since(began))
}

// serves waits until the next request of each kind works.
func (d dialect) serves(t *testing.T, port string) {
	t.Helper()
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "exec", "web", "-c", "log", "--", "echo", "back"); a.out != "back\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	again := d.attach(t)
	require.NoError(t, again.cmd.Process.Kill())
	_ = again.cmd.Wait()
	require.Contains(t, d.run("", "logs", "web", "-c", "log", "--tail=1").out, "trouble")
	_ = d.forwarding(t, port)
}

// state is which containers of pod web run, and how often they were restarted.
func (d dialect) state() string {
	d.t.Helper()
	return d.do("get", "pod", "web", "-o", `jsonpath={range .status.containerStatuses[*]}{.name} {.containerID} {.restartCount}{"\n"}{end}`)
}

// agentKilled kills the agent in the middle of a stream of each kind. The clients are told, no container notices, and the next agent serves.
func (d dialect) agentKilled(t *testing.T, port string) {
	before := d.state()
	b := d.breakable(t, port)
	d.agent.Kill()
	b.told(t)
	d.restart() // it belongs to the whole test
	d.in(t).serves(t, port)
	require.Equal(t, before, d.state())
}

// runtimeKilled kills the runtime in the middle of a stream of each kind, and starts it again. The clients of those that it carries are told
// within seconds. The log is a file, and none of them.
func (d dialect) runtimeKilled(t *testing.T, port string) {
	before := d.state()
	b := d.breakable(t, port)
	require.NoError(t, d.lab.Kill(within(t, timeout)))
	b.logs = nil
	b.told(t)
	require.NoError(t, d.lab.Restart(within(t, 2*timeout)))
	d.in(t).serves(t, port)
	require.Equal(t, before, d.state())
}
