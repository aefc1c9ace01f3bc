// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// processPods are the pods of kubectlPods without images, mounts and a network of their own: with a directory of the host, two ports of it, and a
// file there that has pod brief end.
const processPods = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: none, command: [sh, -c, "echo first; echo of all"]}
  containers:
  - {name: main, image: none, stdin: true, tty: true, command: [sh]}
  - name: log
    image: none
    command: [sh, -c, "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; sleep 0.2; echo trouble >&2; exec sleep 3600"]
  - name: http
    image: none
    workingDir: %[1]s
    command: [sh, -c, "echo hello from the pod > index.html; busybox httpd -p %[2]d -h .; exec busybox httpd -f -p %[3]d -h ."]
    readinessProbe: {httpGet: {path: /index.html, port: %[2]d}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: dead}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: none, command: [sh, -c, "test -e %[1]s/again && { echo second; exec sleep 3600; }; touch %[1]s/again; echo the first time; exit 3"]}
`

// newProcessMember is a member whose pods are plain processes of this host. No container can have the token of its service account.
func newProcessMember(t *testing.T) *member {
	needCluster(t)
	m := (&node{files: newProcesses(t)}).enter(t, map[string]any{}, false)
	m.eventually(timeout, "get", "serviceaccount", "default", "-o", "name")("serviceaccount/default")
	m.do("patch", "serviceaccount", "default", "-p", `{"automountServiceAccountToken":false}`)
	return m
}

// What kubectl does with a pod works, too, where its containers are plain processes, which the agent runs sessions with itself.
func TestClusterKubectlProcess(t *testing.T) {
	m := newProcessMember(t)
	dir, one, other, none := t.TempDir(), exetest.FreePort(t), exetest.FreePort(t), exetest.FreePort(t)
	m.apply(fmt.Sprintf(processPods, dir, one, other))
	m.do("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	m.eventually(timeout, "get", "pod", "dead", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	for _, d := range m.dialects() {
		t.Run(d.name, func(t *testing.T) {
			d := d.in(t)
			t.Run("exec", d.execs)
			t.Run("attach", d.attaches)
			t.Run("cp", func(t *testing.T) { d.copies(t, filepath.Join(dir, d.name)) })
			t.Run("port-forward", func(t *testing.T) { d.forwards(t, strconv.Itoa(one), strconv.Itoa(other), strconv.Itoa(none)) })
			t.Run("port-forward by IPv6", func(t *testing.T) { d.forwardsIPv6(t, servePage(t)) })
			t.Run("ends", func(t *testing.T) { d.ends(t, filepath.Join(dir, "end of "+d.name)) })
		})
	}
	t.Run("logs", dialect{m, "", nil}.logs)
	t.Run("crowd", m.crowd)
	for _, d := range m.dialects() {
		t.Run("killed/"+d.name, d.killed)
		t.Run("agent killed/"+d.name, func(t *testing.T) { d.agentKilled(t, strconv.Itoa(one)) })
	}

	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(timeout, "get", "pods", "-o", "name")("")
	exetest.Eventually(t, timeout, func() error { return m.onlyPod("") })
}

// servePage serves the page of pod web at a port of the host, whose network the pod has, that only IPv6 has.
func servePage(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp6", "[::1]:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello from the pod\n") })}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// session is a kubectl in the background that has said something.
type session struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs bytes.Buffer
}

// begin starts a kubectl, and waits for its first line.
func (d dialect) begin(t *testing.T, args ...string) (s *session, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	s = &session{cmd: d.command(ctx, args...)}
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.cmd.Stderr, s.out = &s.errs, bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	line, err = s.out.ReadString('\n')
	if err != nil {
		_ = s.cmd.Wait() // errs is whole
	}
	require.NoError(t, err, "%s: %s", s.cmd.Args, &s.errs)
	return s, strings.TrimSpace(line)
}

// wait waits for the end of a session, and returns how long that took, its exit code and what it said.
func (s *session) wait() (took time.Duration, code int, said string) {
	began := time.Now()
	rest, _ := io.ReadAll(s.out)
	_ = s.cmd.Wait()
	return time.Since(began), s.cmd.ProcessState.ExitCode(), string(rest) + s.errs.String()
}

// ends has a container end in the middle of sessions. They end with it, and say why where the client shows it.
func (d dialect) ends(t *testing.T, end string) {
	name := "brief-" + strings.ToLower(d.name)
	d.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: main, image: none, stdin: true, command: [sh, -c, "while ! test -e '%s'; do echo still here; sleep 0.05; done; exit 7"]}]}}`, name, end))
	d.do("wait", "--for=jsonpath={.status.phase}=Running", "pod/"+name, "--timeout=60s")
	command, line := d.begin(t, "exec", name, "--", "sh", "-c", "echo $$; exec sleep 3600")
	pid, err := strconv.Atoi(line)
	require.NoError(t, err)
	attached, line := d.begin(t, "attach", "-i", name)
	require.Equal(t, "still here", line)
	forward, _, said := d.forward(t, name, "9")

	require.NoError(t, os.WriteFile(end, nil, 0o600))
	took, code, text := command.wait()
	t.Logf("exec: %v, %d, %q", took, code, text)
	require.Less(t, took, 2*time.Second) // a turn of the loop in the container, and a second
	require.NotZero(t, code)
	require.Regexp(t, `exit code 137|the container or the pod has ended`, text)
	exetest.Eventually(t, timeout, func() error { return gone(pid) })
	took, code, text = attached.wait()
	t.Logf("attach: %v, %d, %q", took, code, text)
	require.Less(t, took, time.Second)
	d.eventually(timeout, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}")("7")

	began := time.Now()
	d.do("delete", "pod", name, "--wait=false")
	_ = forward.Wait()
	t.Logf("port-forward: %v, %q", time.Since(began), said)
	require.Contains(t, said.String(), "lost connection to pod")
}

// crowd runs many commands at once by the agent's own port, without an API server in between. Each output is whole.
func (m *member) crowd(t *testing.T) {
	const commands, size = 50, 200_000
	address := m.relay(t)
	script := "head -c " + strconv.Itoa(size) + " /dev/zero | tr '\\0' "
	var tasks sync.WaitGroup
	for i := range commands {
		tasks.Go(func() {
			letter := string(rune('a' + i%26))
			q := url.Values{"command": {"sh", "-c", script + letter + "; exit " + strconv.Itoa(i+1)}, "output": {"1"}, "error": {"1"}}
			var out, errs bytes.Buffer
			all := streamtest.Protocols()
			c := streamtest.Command{
				URL:      "http://" + address + "/exec/default/web/log?" + q.Encode(),
				Protocol: all[len(all)-1-i%2*6], Stdout: &out, Stderr: &errs,
			}
			fault, err := c.Run(within(t, timeout))
			if assert.NoError(t, err, "%d by %s", i, c.Protocol) {
				assert.Equal(t, strings.Repeat(letter, size), out.String(), "%d by %s", i, c.Protocol)
				assert.Contains(t, fault, fmt.Sprintf(`"message":"%d"`, i+1), "the exit code, by %s", c.Protocol)
				assert.Empty(t, errs.String())
			}
		})
	}
	tasks.Wait()
}

// relay listens on the loopback for clients without TLS, and passes them on to the agent's own port as a user who may do anything.
func (m *member) relay(t *testing.T) string {
	certificate, err := m.ClientCertificate("nodeagent-test-user", "system:masters")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// Nobody has signed the certificate of the agent.
	config := &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true}
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		tasks.Wait()
	})
	tasks.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer client.Close()
				server, err := tls.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(m.port)), config)
				if err != nil {
					return // the client sees the end
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client); _ = server.CloseWrite() }()
				_, _ = io.Copy(client, server)
			})
		}
	})
	return l.Addr().String()
}

// killed kills the agent in the middle of a command, which goes with it. The container does not, and takes the next command.
// The agent that is started then belongs to the whole test.
func (d dialect) killed(t *testing.T) {
	state := `jsonpath={.status.containerStatuses[?(@.name=="log")].containerID} {.status.containerStatuses[?(@.name=="log")].restartCount}`
	before := d.do("get", "pod", "web", "-o", state)
	command, line := d.begin(t, "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "echo $$ $PPID; exec sleep 3600")
	var pid, keeper int
	_, err := fmt.Sscan(line, &pid, &keeper)
	require.NoError(t, err)
	d.agent.Kill()
	took, code, text := command.wait()
	t.Logf("exec: %v, %d, %q", took, code, text)
	// By SPDY a kubectl takes a connection that breaks for the end of a command that has not failed.
	require.Equal(t, d.name == "SPDY", code == 0)
	exetest.Eventually(t, timeout, func() error { return gone(pid) })
	require.NoError(t, syscall.Kill(keeper, 0), "what keeps the container is there")
	d.restart()
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "exec", "web", "-c", "log", "--", "echo", "back"); a.out != "back\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	require.Equal(t, before, d.do("get", "pod", "web", "-o", state))
}
