// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

// dialect is the protocol of kubectl with the API server, which uses the same protocol with the node.
type dialect struct {
	*member
	name string
	env  []string
}

// dialects returns the protocols of kubectl 1.37: WebSockets, and SPDY, which kubectl before 1.31 always used.
func (m *member) dialects() []dialect {
	return []dialect{
		{m, "WebSocket", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}},
		{m, "SPDY", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
	}
}

// forTest returns the dialect for a subtest.
func (d dialect) forTest(t *testing.T) dialect {
	own, ownNode := *d.member, *d.node
	ownNode.t, own.node = t, &ownNode
	return dialect{&own, d.name, d.env}
}

// command returns a kubectl command that is not started yet.
func (d dialect) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.kubectl, append([]string{"--kubeconfig", d.admin}, args...)...)
	cmd.Env = append(append(os.Environ(), "HOME="+d.t.TempDir()), d.env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// kubectlResult is the output and the exit code of a kubectl.
type kubectlResult struct {
	out, errs string
	code      int
}

func (d dialect) run(stdin string, args ...string) kubectlResult {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), timeout)
	defer cancel()
	return d.runCommand(d.command(ctx, args...), stdin)
}

func (d dialect) runCommand(cmd *exec.Cmd, stdin string) (a kubectlResult) {
	d.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	a = kubectlResult{out.String(), errs.String(), 0}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		a.code = failed.ExitCode()
	} else {
		require.NoError(d.t, err, "%s", cmd.Args)
	}
	return a
}

const kubectlPods = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: "nodeagent.test/busybox:1", command: [sh, -c, "echo first; echo of all"]}
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    stdin: true
    tty: true
    command: [sh]
  - name: log
    image: nodeagent.test/busybox:1
    command: [sh, -c, "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; done; sleep 0.2; echo trouble >&2; sleep 3600"]
  - name: http
    image: nodeagent.test/busybox:1
    command: [sh, -c, "mkdir /www; echo hello from the pod > /www/index.html; httpd -p 8080 -h /www; httpd -p [::1]:8082 -h /www; exec httpd -f -p 8081 -h /www"]
    readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: dead}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "nodeagent.test/busybox:1", command: [sh, -c, "test -e /var/run/again/x && { echo second; sleep 3600; }; touch /var/run/again/x; echo the first time; exit 3"], volumeMounts: [{name: again, mountPath: /var/run/again}]}
  volumes: [{name: again, emptyDir: {}}]
`

// kubectl works with pods of this node through the real API server, by WebSockets and by SPDY.
func TestClusterKubectl(t *testing.T) {
	m := newMember(t, map[string]any{"enableSystemLogQuery": true})
	m.apply(kubectlPods)
	m.do("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	m.eventually(timeout, "get", "pod", "dead", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	// The node has the address of a bridge, which exists since the first pod.
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)(m.lab.Subnet().Addr().Next().String())
	for _, d := range m.dialects() {
		t.Run(d.name, func(t *testing.T) {
			d := d.forTest(t)
			t.Run("exec", d.checkExec)
			t.Run("attach", d.checkAttach)
			t.Run("cp", func(t *testing.T) { d.checkCopy(t, "/tmp/"+d.name) })
			t.Run("port-forward", func(t *testing.T) { d.checkForward(t, "8080", "8081", "9") })
			t.Run("port-forward by IPv6", func(t *testing.T) { d.checkForwardIPv6(t, portIPv6(t)) })
			if os.Getenv("NODEAGENT_SOAK") != "" {
				t.Run("port-forward of 1 GiB", d.checkLargeForward)
			}
		})
	}
	t.Run("logs", dialect{m, "", nil}.checkLogs)
	t.Run("debug", dialect{m, "", nil}.checkDebug)
	t.Run("raw", dialect{m, "", nil}.checkPages)
	for _, d := range m.dialects() { // an agent that is started here runs until the whole test ends
		t.Run("agent killed/"+d.name, func(t *testing.T) { d.checkAgentKill(t, "8080") })
		t.Run("runtime killed/"+d.name, func(t *testing.T) { d.checkRuntimeKill(t, "8080") })
	}

	m.do("delete", "pods", "--all", "--wait=false")
	exetest.Eventually(t, timeout, func() error {
		left, err := m.pods()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods remain", len(left))
		}
		return err
	})
}

func (d dialect) checkExec(t *testing.T) {
	require.Equal(t, kubectlResult{"out\n", "err\n", 0}, d.run("", "exec", "web", "-c", "log", "--", "sh", "-c", "echo out; echo err >&2"))
	failed := d.run("", "exec", "web", "-c", "log", "--", "sh", "-c", "echo bye; exit 42")
	require.Equal(t, 42, failed.code, failed.errs)
	require.Equal(t, "bye\n", failed.out)
	require.Contains(t, failed.errs, "exit code 42")

	big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB each way
	require.Equal(t, kubectlResult{big, "", 0}, d.run(big, "exec", "-i", "web", "-c", "log", "--", "cat"))
	require.Equal(t, "3\n", d.run("a\nb\nc\n", "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "wc -l | tr -d ' '").out, "the end of stdin reaches the command")

	size := d.runAtTerminal(t, "exec", "-it", "web", "-c", "log", "--", "sh", "-c", "sleep 1; tty; stty size")
	require.Regexp(t, `(?s)/dev/pts/\d+\s+33 77\s`, size)

	missing := d.run("", "exec", "web", "-c", "log", "--", "nothing-of-this-name")
	require.NotZero(t, missing.code)
	require.Contains(t, missing.errs, "nothing-of-this-name")
	require.Contains(t, d.run("", "exec", "web", "-c", "nope", "--", "true").errs, "nope")
}

// runAtTerminal runs a kubectl in a terminal of 33 rows and 77 columns, and returns its output.
func (d dialect) runAtTerminal(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := d.command(ctx, args...)
	line := "stty rows 33 cols 77; exec '" + strings.Join(append([]string{cmd.Path}, cmd.Args[1:]...), "' '") + "'"
	at := exec.CommandContext(ctx, "script", "-qec", line, "/dev/null")
	at.Env = cmd.Env
	a := d.runCommand(at, "")
	require.Zero(t, a.code, "%s%s", a.out, a.errs)
	return a.out
}

func (d dialect) checkAttach(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := d.command(ctx, "attach", "-i", "web", "-c", "main")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	require.NoError(t, cmd.Start())
	_, err = io.WriteString(stdin, "echo $((6*7))th of "+d.name+"\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "42th of "+d.name) {
			break
		}
	}
	require.NoError(t, lines.Err())
	require.Contains(t, lines.Text(), "42th of "+d.name, errs.String())
	require.NoError(t, cmd.Process.Kill()) // the client may leave
	_ = cmd.Wait()
	require.Equal(t, "0", d.do("get", "pod", "web", "-o", `jsonpath={.status.containerStatuses[?(@.name=="main")].restartCount}`))
}

// checkCopy copies files of many sizes to a directory of a container and back: 300 files of 9 MiB in total, or 10,000 and
// one of 1 GiB with NODEAGENT_SOAK.
func (d dialect) checkCopy(t *testing.T, there string) {
	files, large := 300, int64(0)
	if os.Getenv("NODEAGENT_SOAK") != "" {
		files, large = 10_000, 1<<30
	}
	content := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, (i%300)*(i%300)) }
	from, to := t.TempDir(), t.TempDir()
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(from, fmt.Sprint(i)), content(i), 0o644))
	}
	sum := makeLarge(t, filepath.Join(from, "large"), large)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for _, way := range [][]string{{from, "default/web:" + there}, {"default/web:" + there, to}} {
		began := time.Now()
		a := d.runCommand(d.command(ctx, "cp", way[0], way[1], "-c", "log"), "")
		require.Zero(t, a.code, a.errs)
		t.Logf("%s to %s: %v", way[0], way[1], time.Since(began).Round(time.Millisecond))
	}
	for i := range files {
		got, err := os.ReadFile(filepath.Join(to, fmt.Sprint(i)))
		require.NoError(t, err)
		require.Equal(t, content(i), got, "file %d", i)
	}
	require.Equal(t, sum, checksum(t, filepath.Join(to, "large")))
	require.Zero(t, d.run("", "exec", "web", "-c", "log", "--", "rm", "-r", there).code)
}

// makeLarge creates a file that does not compress, and returns its checksum.
func makeLarge(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	require.NoError(t, errors.Join(err, f.Close()))
	return checksum(t, path)
}

func checksum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// startForward starts a port-forward to a pod, and returns the local ports by the ports of the pod.
func (d dialect) startForward(t *testing.T, pod string, ports ...string) (cmd *exec.Cmd, local map[string]string, errs *bytes.Buffer) {
	t.Helper()
	return d.startForwardAt(t, "127.0.0.1", pod, ports...)
}

// startForwardAt is startForward with local ports at an address of the loopback.
func (d dialect) startForwardAt(t *testing.T, address, pod string, ports ...string) (cmd *exec.Cmd, local map[string]string, errs *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	args := []string{"port-forward", "--address", address, "pod/" + pod}
	for _, port := range ports {
		args = append(args, ":"+port)
	}
	cmd, errs = d.command(ctx, args...), new(bytes.Buffer)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = errs
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	local = map[string]string{}
	pattern := regexp.MustCompile(regexp.QuoteMeta(net.JoinHostPort(address, "")) + `(\d+) -> (\d+)`)
	for lines := bufio.NewScanner(stdout); len(local) < len(ports) && lines.Scan(); {
		if m := pattern.FindStringSubmatch(lines.Text()); m != nil {
			local[m[2]] = m[1]
		}
	}
	if len(local) < len(ports) {
		_ = cmd.Wait() // so that errs is complete
		require.Len(t, local, len(ports), errs.String())
	}
	return cmd, local, errs
}

// checkForward reads a page from two ports of pod web, and fails to read from a port without a server.
func (d dialect) checkForward(t *testing.T, one, other, none string) {
	_, local, _ := d.startForward(t, "web", one, other, none)
	for _, port := range []string{one, other, one} {
		answer, err := http.Get("http://127.0.0.1:" + local[port] + "/index.html")
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		assert.Equal(t, "hello from the pod\n", string(text))
	}
	_, err := http.Get("http://127.0.0.1:" + local[none])
	require.Error(t, err, "no server listens at the port")
}

// portIPv6 returns a port of pod web that is served by IPv6 only. If /etc/hosts of this machine has no IPv6 address of
// localhost, it returns one that is served by IPv4: containerd looks up localhost to connect to the pod.
func portIPv6(t *testing.T) string {
	addrs, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip6", "localhost")
	if err == nil && len(addrs) > 0 {
		return "8082"
	}
	t.Logf("containerd cannot connect to a pod by IPv6: localhost has no IPv6 address: %v", err)
	return "8080"
}

// checkForwardIPv6 reads a page of pod web through a local port that listens on IPv6 only.
func (d dialect) checkForwardIPv6(t *testing.T, port string) {
	_, local, _ := d.startForwardAt(t, "::1", "web", port)
	answer, err := http.Get("http://" + net.JoinHostPort("::1", local[port]) + "/index.html")
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Equal(t, "hello from the pod\n", string(text))
	_, err = net.Dial("tcp4", net.JoinHostPort("127.0.0.1", local[port]))
	require.Error(t, err, "the local port listens on IPv6 only")
}

// checkLargeForward forwards 1 GiB, which the agent does not buffer.
func (d dialect) checkLargeForward(t *testing.T) {
	_, local, _ := d.startForward(t, "web", "8080")
	made := d.run("", "exec", "web", "-c", "http", "--", "sh", "-c", "head -c 1073741824 /dev/urandom > /www/large; sha256sum /www/large")
	require.Zero(t, made.code, made.errs)
	before := d.residentMemory(t)
	began := time.Now()
	answer, err := http.Get("http://127.0.0.1:" + local["8080"] + "/large")
	require.NoError(t, err)
	h, most := sha256.New(), int64(0)
	for n := int64(0); n < 1<<30; n += 1 << 20 {
		if _, err := io.CopyN(h, answer.Body, 1<<20); !assert.NoError(t, err) {
			break
		}
		most = max(most, d.residentMemory(t))
	}
	require.NoError(t, answer.Body.Close())
	require.Contains(t, made.out, hex.EncodeToString(h.Sum(nil)))
	t.Logf("1 GiB in %v; the agent has %d KiB, before %d KiB", time.Since(began).Round(time.Millisecond), most, before)
	require.Less(t, most-before, int64(16<<10))
}

// residentMemory is the resident memory of the agent in KiB.
func (d dialect) residentMemory(t *testing.T) (kib int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.agent.PID()))
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "VmRSS:")
	require.True(t, ok)
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

func (d dialect) checkLogs(t *testing.T) {
	line := func(from, to int) (text string) {
		for i := from; i <= to; i++ {
			text += fmt.Sprintln("line", i)
		}
		return text
	}
	log := func(args ...string) string {
		t.Helper()
		a := d.run("", append([]string{"logs"}, args...)...)
		require.Zero(t, a.code, a.errs)
		return a.out
	}
	require.Equal(t, line(1, 10)+"trouble\n", log("web", "-c", "log"))
	require.Equal(t, line(10, 10)+"trouble\n", log("web", "-c", "log", "--tail=2"))
	require.Equal(t, "line", log("web", "-c", "log", "--limit-bytes=4"))
	require.Equal(t, line(1, 10)+"trouble\n", log("web", "-c", "log", "--since=1h"))
	require.Empty(t, log("web", "-c", "log", "--since-time="+time.Now().UTC().Add(time.Hour).Format(time.RFC3339)))
	require.Regexp(t, `(?m)\A(\d{4}-\d\d-\d\dT\S+Z (line \d+|trouble)\n){11}\z`, log("web", "-c", "log", "--timestamps"))
	require.Equal(t, "first\nof all\n", log("web", "-c", "init"))
	require.Equal(t, "the first time\n", log("dead", "-p"))
	require.Equal(t, "second\n", log("dead"))
	require.Contains(t, d.run("", "logs", "web", "-c", "log", "-p").errs, "not found")

	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	d.apply(`{apiVersion: v1, kind: Pod, metadata: {name: ticks}, spec: {restartPolicy: Never, containers: [{name: main, image: "nodeagent.test/busybox:1", command: [sh, -c, "for i in 1 2 3; do echo tick $i; sleep 1; done"]}]}}`)
	d.do("wait", "--for=jsonpath={.status.phase}=Running", "pod/ticks", "--timeout=60s")
	require.Equal(t, kubectlResult{"tick 1\ntick 2\ntick 3\n", "", 0}, d.runCommand(d.command(ctx, "logs", "-f", "ticks"), ""), "kubectl logs -f exits with the container")
}

// checkDebug adds an ephemeral container to a running pod.
func (d dialect) checkDebug(t *testing.T) {
	a := d.run("", "debug", "web", "--image=nodeagent.test/busybox:1", "--image-pull-policy=IfNotPresent", "-c", "look", "--target=http", "--profile=general", "--", "sh", "-c", "wget -qO- http://127.0.0.1:8080/index.html")
	require.Zero(t, a.code, a.errs)
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "logs", "web", "-c", "look"); a.out != "hello from the pod\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
}

// checkPages reads all pages of the node through the API server.
func (d dialect) checkPages(t *testing.T) {
	get := func(path string) string {
		t.Helper()
		a := d.run("", "get", "--raw", "/api/v1/nodes/n1/proxy"+path)
		require.Zero(t, a.code, "%s: %s", path, a.errs)
		return a.out
	}
	require.Equal(t, "ok", get("/healthz"))
	require.Contains(t, get("/pods"), `"name":"web"`)
	require.Contains(t, get("/runningpods/"), `"name":"web"`)
	require.Contains(t, get("/configz"), `"kubeletconfig":{`)
	require.Contains(t, get("/stats/summary"), `"podRef"`)
	require.Contains(t, get("/containerLogs/default/web/log?tailLines=1"), "trouble")
	require.Contains(t, get("/logs/"), "<pre>")
	require.Contains(t, get("/statusz"), "kubelet")
	require.Contains(t, get("/debug/pprof/cmdline"), "-config")
	require.Contains(t, get("/metrics/probes"), "prober_probe_total")
	require.Contains(t, get("/metrics/slis"), "process_start_time_seconds")
	require.Contains(t, get("/metrics"), "kubelet_running_pods")
	require.Contains(t, get("/metrics/resource"), `container_cpu_usage_seconds_total{container="log",namespace="default",pod="web"}`)
	require.Contains(t, get("/metrics/cadvisor"), `container_memory_working_set_bytes{`)
}
