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

// dialect is how kubectl talks to the API server, which talks to the node likewise.
type dialect struct {
	*member
	name string
	env  []string
}

// dialects are those of kubectl 1.37: WebSockets, and SPDY as all kubectls before 1.31 had it.
func (m *member) dialects() []dialect {
	return []dialect{
		{m, "WebSocket", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"}},
		{m, "SPDY", []string{"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"}},
	}
}

// in is the same for a test within the test.
func (d dialect) in(t *testing.T) dialect {
	own, ownNode := *d.member, *d.node
	ownNode.t, own.node = t, &ownNode
	return dialect{&own, d.name, d.env}
}

// command is a kubectl that is yet to be started.
func (d dialect) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.kubectl, append([]string{"--kubeconfig", d.admin}, args...)...)
	cmd.Env = append(append(os.Environ(), "HOME="+d.t.TempDir()), d.env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// answer is what a kubectl has said and how it ended.
type answer struct {
	out, errs string
	code      int
}

func (d dialect) run(stdin string, args ...string) answer {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), timeout)
	defer cancel()
	return d.end(d.command(ctx, args...), stdin)
}

func (d dialect) end(cmd *exec.Cmd, stdin string) (a answer) {
	d.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	a = answer{out.String(), errs.String(), 0}
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

// What kubectl does with a pod works on this node, through the real API server, by WebSockets and by SPDY.
func TestClusterKubectl(t *testing.T) {
	m := newMember(t, map[string]any{"enableSystemLogQuery": true})
	m.apply(kubectlPods)
	m.do("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
	m.eventually(timeout, "get", "pod", "dead", "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	// The address is that of a bridge, which is there since the first pod is.
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)(m.lab.Subnet().Addr().Next().String())
	for _, d := range m.dialects() {
		t.Run(d.name, func(t *testing.T) {
			d := d.in(t)
			t.Run("exec", d.execs)
			t.Run("attach", d.attaches)
			t.Run("cp", func(t *testing.T) { d.copies(t, "/tmp/"+d.name) })
			t.Run("port-forward", func(t *testing.T) { d.forwards(t, "8080", "8081", "9") })
			t.Run("port-forward by IPv6", func(t *testing.T) { d.forwardsIPv6(t, portIPv6(t)) })
			if os.Getenv("NODEAGENT_SOAK") != "" {
				t.Run("port-forward of 1 GiB", d.forwardsMuch)
			}
		})
	}
	t.Run("logs", dialect{m, "", nil}.logs)
	t.Run("debug", dialect{m, "", nil}.debugs)
	t.Run("raw", dialect{m, "", nil}.raw)
	for _, d := range m.dialects() { // the agents that are started here belong to the whole test
		t.Run("agent killed/"+d.name, func(t *testing.T) { d.agentKilled(t, "8080") })
		t.Run("runtime killed/"+d.name, func(t *testing.T) { d.runtimeKilled(t, "8080") })
	}

	m.do("delete", "pods", "--all", "--wait=false")
	exetest.Eventually(t, timeout, func() error {
		left, err := m.pods()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods are left", len(left))
		}
		return err
	})
}

func (d dialect) execs(t *testing.T) {
	require.Equal(t, answer{"out\n", "err\n", 0}, d.run("", "exec", "web", "-c", "log", "--", "sh", "-c", "echo out; echo err >&2"))
	failed := d.run("", "exec", "web", "-c", "log", "--", "sh", "-c", "echo bye; exit 42")
	require.Equal(t, 42, failed.code, failed.errs)
	require.Equal(t, "bye\n", failed.out)
	require.Contains(t, failed.errs, "exit code 42")

	big := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB each way
	require.Equal(t, answer{big, "", 0}, d.run(big, "exec", "-i", "web", "-c", "log", "--", "cat"))
	require.Equal(t, "3\n", d.run("a\nb\nc\n", "exec", "-i", "web", "-c", "log", "--", "sh", "-c", "wc -l | tr -d ' '").out, "the end of stdin arrives")

	size := d.terminal(t, "exec", "-it", "web", "-c", "log", "--", "sh", "-c", "sleep 1; tty; stty size")
	require.Regexp(t, `(?s)/dev/pts/\d+\s+33 77\s`, size)

	missing := d.run("", "exec", "web", "-c", "log", "--", "nothing-of-this-name")
	require.NotZero(t, missing.code)
	require.Contains(t, missing.errs, "nothing-of-this-name")
	require.Contains(t, d.run("", "exec", "web", "-c", "nope", "--", "true").errs, "nope")
}

// terminal runs a kubectl at a terminal of 33 lines of 77 characters and returns what it shows.
func (d dialect) terminal(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	cmd := d.command(ctx, args...)
	line := "stty rows 33 cols 77; exec '" + strings.Join(append([]string{cmd.Path}, cmd.Args[1:]...), "' '") + "'"
	at := exec.CommandContext(ctx, "script", "-qec", line, "/dev/null")
	at.Env = cmd.Env
	a := d.end(at, "")
	require.Zero(t, a.code, "%s%s", a.out, a.errs)
	return a.out
}

func (d dialect) attaches(t *testing.T) {
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
	require.NoError(t, cmd.Process.Kill()) // whoever is attached may go
	_ = cmd.Wait()
	require.Equal(t, "0", d.do("get", "pod", "web", "-o", `jsonpath={.status.containerStatuses[?(@.name=="main")].restartCount}`))
}

// copies has files of many sizes go to a directory of a container and back: 300 of 9 MiB in all, or 10,000 and one of 1 GiB with NODEAGENT_SOAK.
func (d dialect) copies(t *testing.T, there string) {
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
		a := d.end(d.command(ctx, "cp", way[0], way[1], "-c", "log"), "")
		require.Zero(t, a.code, a.errs)
		t.Logf("%s to %s: %v", way[0], way[1], time.Since(began).Round(time.Millisecond))
	}
	for i := range files {
		got, err := os.ReadFile(filepath.Join(to, fmt.Sprint(i)))
		require.NoError(t, err)
		require.Equal(t, content(i), got, "file %d", i)
	}
	require.Equal(t, sum, sumOf(t, filepath.Join(to, "large")))
	require.Zero(t, d.run("", "exec", "web", "-c", "log", "--", "rm", "-r", there).code)
}

// makeLarge makes a file that does not compress, and returns its checksum.
func makeLarge(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), size)
	require.NoError(t, errors.Join(err, f.Close()))
	return sumOf(t, path)
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// forward is a port-forward to a pod, with the local ports of those of the pod.
func (d dialect) forward(t *testing.T, pod string, ports ...string) (cmd *exec.Cmd, local map[string]string, errs *bytes.Buffer) {
	t.Helper()
	return d.forwardAt(t, "127.0.0.1", pod, ports...)
}

// forwardAt is forward with the local ports at an address of the loopback.
func (d dialect) forwardAt(t *testing.T, address, pod string, ports ...string) (cmd *exec.Cmd, local map[string]string, errs *bytes.Buffer) {
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
	said := regexp.MustCompile(regexp.QuoteMeta(net.JoinHostPort(address, "")) + `(\d+) -> (\d+)`)
	for lines := bufio.NewScanner(stdout); len(local) < len(ports) && lines.Scan(); {
		if m := said.FindStringSubmatch(lines.Text()); m != nil {
			local[m[2]] = m[1]
		}
	}
	if len(local) < len(ports) {
		_ = cmd.Wait() // errs is whole
		require.Len(t, local, len(ports), errs.String())
	}
	return cmd, local, errs
}

// forwards reads a page from two ports of pod web, and none from one that nobody listens on.
func (d dialect) forwards(t *testing.T, one, other, none string) {
	_, local, _ := d.forward(t, "web", one, other, none)
	for _, port := range []string{one, other, one} {
		answer, err := http.Get("http://127.0.0.1:" + local[port] + "/index.html")
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		assert.Equal(t, "hello from the pod\n", string(text))
	}
	_, err := http.Get("http://127.0.0.1:" + local[none])
	require.Error(t, err, "nobody listens there")
}

// portIPv6 returns the port of pod web that only IPv6 has, or one that only IPv4 has where this machine's /etc/hosts has no IPv6 address of
// localhost: containerd asks there for the address in the pod.
func portIPv6(t *testing.T) string {
	addrs, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip6", "localhost")
	if err == nil && len(addrs) > 0 {
		return "8082"
	}
	t.Logf("containerd finds no server in a pod by IPv6 here: localhost has no such address: %v", err)
	return "8080"
}

// forwardsIPv6 reads a page through a local port that only IPv6 has from a port of pod web.
func (d dialect) forwardsIPv6(t *testing.T, port string) {
	_, local, _ := d.forwardAt(t, "::1", "web", port)
	answer, err := http.Get("http://" + net.JoinHostPort("::1", local[port]) + "/index.html")
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Equal(t, "hello from the pod\n", string(text))
	_, err = net.Dial("tcp4", net.JoinHostPort("127.0.0.1", local[port]))
	require.Error(t, err, "the local port is one of IPv6 alone")
}

// forwardsMuch has 1 GiB go through, which does not stay in the agent.
func (d dialect) forwardsMuch(t *testing.T) {
	_, local, _ := d.forward(t, "web", "8080")
	made := d.run("", "exec", "web", "-c", "http", "--", "sh", "-c", "head -c 1073741824 /dev/urandom > /www/large; sha256sum /www/large")
	require.Zero(t, made.code, made.errs)
	before := d.resident(t)
	began := time.Now()
	answer, err := http.Get("http://127.0.0.1:" + local["8080"] + "/large")
	require.NoError(t, err)
	h, most := sha256.New(), int64(0)
	for n := int64(0); n < 1<<30; n += 1 << 20 {
		if _, err := io.CopyN(h, answer.Body, 1<<20); !assert.NoError(t, err) {
			break
		}
		most = max(most, d.resident(t))
	}
	require.NoError(t, answer.Body.Close())
	require.Contains(t, made.out, hex.EncodeToString(h.Sum(nil)))
	t.Logf("1 GiB in %v; the agent has %d KiB, and %d KiB before", time.Since(began).Round(time.Millisecond), most, before)
	require.Less(t, most-before, int64(16<<10))
}

// resident is the resident memory of the agent in KiB.
func (d dialect) resident(t *testing.T) (kib int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.agent.PID()))
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "VmRSS:")
	require.True(t, ok)
	_, err = fmt.Sscan(after, &kib)
	require.NoError(t, err)
	return kib
}

func (d dialect) logs(t *testing.T) {
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
	require.Equal(t, answer{"tick 1\ntick 2\ntick 3\n", "", 0}, d.end(d.command(ctx, "logs", "-f", "ticks"), ""), "it ends with the container")
}

// debugs adds a container to a pod that runs.
func (d dialect) debugs(t *testing.T) {
	a := d.run("", "debug", "web", "--image=nodeagent.test/busybox:1", "--image-pull-policy=IfNotPresent", "-c", "look", "--target=http", "--profile=general", "--", "sh", "-c", "wget -qO- http://127.0.0.1:8080/index.html")
	require.Zero(t, a.code, a.errs)
	exetest.Eventually(t, timeout, func() error {
		if a := d.run("", "logs", "web", "-c", "look"); a.out != "hello from the pod\n" {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
}

// raw reads all pages of the node through the API server.
func (d dialect) raw(t *testing.T) {
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
