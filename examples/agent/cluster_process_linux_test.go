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

// processPods are the pods of kubectlPods without images, mounts and network. They have a directory and two ports of the
// host.
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

// newProcessMember is a member whose pods are plain processes of this host. No container can have the token of its service
// account.
func newProcessMember(t *testing.T) *member {
	needCluster(t)
	m := (&node{files: newProcesses(t)}).joinCluster(t, map[string]any{}, false)
	m.eventually(timeout, "get", "serviceaccount", "default", "-o", "name")("serviceaccount/default")
	m.do("patch", "serviceaccount", "default", "-p", `{"automountServiceAccountToken":false}`)
	return m
}

// kubectl also works with pods whose containers are plain processes. The agent runs their sessions itself.
func TestClusterKubectlProcess(t *testing.T) {
	m := newProcessMember(t)
	dir, one, other, none := t.TempDir(), exetest.FreePort(t), exetest.FreePort(t), exetest.FreePort(t)
	m.apply(fmt.Sprintf(processPods, dir, one, other))
	m.do("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	m.eventually(timeout, "get", "pod", "dead", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	for _, d := range m.dialects() {
		t.Run(d.name, func(t *testing.T) {
			d := d.forTest(t)
			t.Run("exec", d.checkExec)
			t.Run("attach", d.checkAttach)
			t.Run("cp", func(t *testing.T) { d.checkCopy(t, filepath.Join(dir, d.name)) })
			t.Run("port-forward", func(t *testing.T) { d.checkForward(t, strconv.Itoa(one), strconv.Itoa(other), strconv.Itoa(none)) })
			t.Run("port-forward by IPv6", func(t *testing.T) { d.checkForwardIPv6(t, servePage(t)) })
			t.Run("container exits", func(t *testing.T) { d.checkSessionEnd(t, filepath.Join(dir, "end of "+d.name)) })
		})
	}
	t.Run("logs", dialect{m, "", nil}.checkLogs)
	t.Run("parallel exec", m.checkParallelExec)
	for _, d := range m.dialects() {
		t.Run("agent killed during exec/"+d.name, d.checkAgentKillDuringExec)
		t.Run("agent killed/"+d.name, func(t *testing.T) { d.checkAgentKill(t, strconv.Itoa(one)) })
	}

	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(timeout, "get", "pods", "-o", "name")("")
	exetest.Eventually(t, timeout, func() error { return m.checkOnlyPod("") })
}

// servePage serves the page of pod web on the network of the host, which the pod uses, at an IPv6-only port.
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

// session is a kubectl in the background that has printed a line.
type session struct {
	cmd  *exec.Cmd
	out  *bufio.Reader
	errs bytes.Buffer
}

// startSession starts a kubectl, and waits for its first line.
func (d dialect) startSession(t *testing.T, args ...string) (s *session, line string) {
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
		_ = s.cmd.Wait() // so that errs is complete
	}
	require.NoError(t, err, "%s: %s", s.cmd.Args, &s.errs)
	return s, strings.TrimSpace(line)
}

// wait waits until a session exits. It returns the time that this took, the exit code and the output.
func (s *session) wait() (took time.Duration, code int, said string) {
	began := time.Now()
	rest, _ := io.ReadAll(s.out)
	_ = s.cmd.Wait()
	return time.Since(began), s.cmd.ProcessState.ExitCode(), string(rest) + s.errs.String()
}

// checkSessionEnd lets a container exit during sessions. They end with it, and report the reason if the protocol supports
// it.
func (d dialect) checkSessionEnd(t *testing.T, end string) {
	name := "brief-" + strings.ToLower(d.name)
	d.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: main, image: none, stdin: true, command: [sh, -c, "while ! test -e '%s'; do echo still here; sleep 0.05; done; exit 7"]}]}}`, name, end))
	d.do("wait", "--for=jsonpath={.status.phase}=Running", "pod/"+name, "--timeout=60s")
	command, line := d.startSession(t, "exec", name, "--", "sh", "-c", "echo $$; exec sleep 3600")
	pid, err := strconv.Atoi(line)
	require.NoError(t, err)
	attached, line := d.startSession(t, "attach", "-i", name)
	require.Equal(t, "still here", line)
	forward, _, said := d.startForward(t, name, "9")

	require.NoError(t, os.WriteFile(end, nil, 0o600))
	took, code, text := command.wait()
	t.Logf("exec: %v, %d, %q", took, code, text)
	require.Less(t, took, 2*time.Second) // an iteration of the loop in the container, and a second
	require.NotZero(t, code)
	require.Regexp(t, `exit code 137|the container or the pod has ended`, text)
	exetest.Eventually(t, timeout, func() error { return checkExited(pid) })
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

// checkParallelExec runs many commands at once on the agent's own port, without an API server in between. Each output is
// complete.
func (m *member) checkParallelExec(t *testing.T) {
	const commands, size = 50, 200_000
	address := m.startRelay(t)
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

// startRelay listens on the loopback for clients without TLS. It forwards their connections to the agent's own port, as a
// user with all permissions.
func (m *member) startRelay(t *testing.T) string {
	certificate, err := m.ClientCertificate("nodeagent-test-user", "system:masters")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// The agent has a self-signed certificate.
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
					return // the client sees a closed connection
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client); _ = server.CloseWrite() }()
				_, _ = io.Copy(client, server)
			})
		}
	})
	return l.Addr().String()
}

// checkAgentKillDuringExec kills the agent during a command, which is killed with it. The container keeps running, and a
// restarted agent runs the next command. That agent runs until the whole test ends.
func (d dialect) checkAgentKillDuringExec(t *testing.T) {
	state := `jsonpath={.status.containerStatuses[?(@.name=="log")].containerID} {.status.containerStatuses[?(@.name=="log")].restartCount}`
	before := d.do("get", "pod", "web", "-o", state)
	command, line := d.startSession(t, "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "echo $$ $PPID; exec sleep 3600")
	var pid, keeper int
	_, err := fmt.Sscan(line, &pid, &keeper)
	require.NoError(t, err)
	d.agent.Kill()
	took, code, text := command.wait()
	t.Logf("exec: %v, %d, %q", took, code, text)
	// With SPDY, kubectl takes a broken connection for the end of a successful command.
	require.Equal(t, d.name == "SPDY", code == 0)
	exetest.Eventually(t, timeout, func() error { return checkExited(pid) })
	require.NoError(t, syscall.Kill(keeper, 0), "the keeper of the container runs")
	d.restart()
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "exec", "web", "-c", "log", "--", "echo", "back"); a.out != "back\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	require.Equal(t, before, d.do("get", "pod", "web", "-o", state))
}
