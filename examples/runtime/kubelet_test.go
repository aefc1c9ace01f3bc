// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/streaming/streamtest"
)

// webManifest has every kind of mount that a kubelet without an API server provides.
const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, uid: web-uid, labels: {app: shop}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: data, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - {name: host, hostPath: {path: %q, type: Directory}}
  initContainers:
  - name: first
    image: none
    command: [sh, -c, "echo from init > /data/init"]
    volumeMounts: [{name: data, mountPath: /data}]
  containers:
  - name: web
    image: none
    command: [sh, -c, "cat /data/init; echo started as $(hostname); touch /data/ready; while :; do echo of the pod | busybox nc -l -p 8080; done"]
    readinessProbe: {exec: {command: [cat, /data/ready]}, periodSeconds: 1}
    resources: {requests: {memory: 16Mi, cpu: 100m}, limits: {memory: 64Mi, cpu: 500m}}
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: data, mountPath: /nodeagent-sub, subPath: below/it}
    - {name: memory, mountPath: /data/memory}
    - {name: info, mountPath: /etc/podinfo}
    - {name: host, mountPath: /var/run/secrets/nodeagent-test, readOnly: true}
`

const jobManifest = `
apiVersion: v1
kind: Pod
metadata: {name: job, namespace: default, uid: job-uid}
spec:
  restartPolicy: Never
  containers:
  - name: job
    image: none
    command: [sh, -c, "echo so it ended > /dev/termination-log; exit 3"]
`

const cniConfig = `{"name":"kubelet","cniVersion":"1.0.0","plugins":[
	{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"subnet":"10.215.0.0/24","routes":[{"dst":"0.0.0.0/0"}]}}
]}`

// kubelet is a kubelet and its HTTP API.
type kubelet struct {
	t      *testing.T
	url    string
	client *http.Client
}

// startKubelet starts a kubelet on a runtime. Its pods are static, unless flags name a kubeconfig.
func startKubelet(t *testing.T, binary, socket, manifests string, flags ...string) *kubelet {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": manifests, "containerRuntimeEndpoint": "unix://" + socket,
		"registerNode": len(flags) > 0, "syncFrequency": "1s",
		"podLogsDir": filepath.Join(dir, "logs"), "volumePluginDir": filepath.Join(dir, "plugins"),
		"address": "127.0.0.1", "port": port, "healthzPort": 0, "readOnlyPort": 0,
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"cgroupDriver":   "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failCgroupV1": false, "failSwapOn": false, "makeIPTablesUtilChains": false,
		"imageGCHighThresholdPercent": 100,
		"evictionHard":                map[string]string{"memory.available": "1Mi", "nodefs.available": "1%", "nodefs.inodesFree": "0%"},
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kubelet.json"), config, 0o600))
	log, err := os.Create(filepath.Join(dir, "kubelet.log"))
	require.NoError(t, err)
	cmd := exec.Command(binary, append(flags, "--config="+dir+"/kubelet.json", "--root-dir="+dir+"/root", "--cert-dir="+dir+"/pki",
		"--hostname-override=node", "--v=2")...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("end of the kubelet's log:\n%s", text[max(0, len(text)-8000):])
		}
		// The kubelet bind-mounts its root directory on itself. Unmount it before t.TempDir removes it.
		for unix.Unmount(dir+"/root", unix.MNT_DETACH) == nil {
		}
	})
	return &kubelet{t: t, url: fmt.Sprintf("https://127.0.0.1:%d", port), client: &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, // it has a self-signed certificate
	}}
}

// request returns the body of a response of the kubelet.
func (k *kubelet) request(method, path string) (string, error) {
	req, err := http.NewRequestWithContext(k.t.Context(), method, k.url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return string(body), err
}

// exec runs a command in the container web of a pod.
func (k *kubelet) exec(pod, command string) string {
	k.t.Helper()
	out, err := k.request(http.MethodPost, "/run/default/"+pod+"/web?cmd="+url.QueryEscape(command))
	require.NoError(k.t, err)
	return out
}

// awaitPod waits until is returns true for the status of a pod, and returns the status.
func (k *kubelet) awaitPod(name string, is func(*corev1.PodStatus) bool) *corev1.PodStatus {
	k.t.Helper()
	var found *corev1.PodStatus
	exetest.Eventually(k.t, time.Minute, func() error {
		text, err := k.request(http.MethodGet, "/pods")
		if err != nil {
			return err
		}
		var list corev1.PodList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Name == name+"-node" && is(&p.Status) {
				found = &p.Status
				return nil
			}
		}
		return fmt.Errorf("unexpected status of pod %s: %.4000s", name, text)
	})
	return found
}

// checkSessions runs exec, attach and port-forward sessions with the container web of a pod, in every protocol of kubectl.
func (k *kubelet) checkSessions(pod string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	const script = "read word; echo got $word; echo problem >&2; exit 7"
	for _, protocol := range []string{"SPDY v4.channel.k8s.io", "WebSocket v4.channel.k8s.io", "WebSocket v5.channel.k8s.io"} {
		var out, errs bytes.Buffer
		c := streamtest.Command{Protocol: protocol, Stdin: strings.NewReader("a word\n"), Stdout: &out, Stderr: &errs}
		c.URL = k.url + "/exec/default/" + pod + "/web?input=1&output=1&error=1&command=sh&command=-c&command=" + url.QueryEscape(script)
		fault, err := c.Run(ctx)
		require.NoError(k.t, err, protocol)
		require.Equal(k.t, "got a word\n", out.String(), protocol)
		require.Equal(k.t, "problem\n", errs.String(), protocol)
		require.Contains(k.t, fault, `"causes":[{"reason":"ExitCode","message":"7"}]`, protocol)

		out.Reset()
		c = streamtest.Command{Protocol: protocol, Stdout: &out, TTY: true, Sizes: []cri.TerminalSize{{Width: 71, Height: 23}}}
		c.URL = k.url + "/exec/default/" + pod + "/web?output=1&tty=1&command=sh&command=-c&command=" +
			url.QueryEscape("until [ \"$(stty size)\" = '23 71' ]; do sleep .1; done; tty -s && echo a terminal")
		_, err = c.Run(ctx)
		require.NoError(k.t, err, protocol)
		require.Equal(k.t, "a terminal\r\n", out.String(), protocol)
	}
	_, err := streamtest.Command{Protocol: "SPDY v4.channel.k8s.io", Stdout: io.Discard, URL: k.url + "/attach/default/" + pod + "/other?output=1"}.Run(ctx)
	var refused *streamtest.Refused
	require.ErrorAs(k.t, err, &refused)
	require.Equal(k.t, http.StatusInternalServerError, refused.Code)
	attached, leave := context.WithTimeout(ctx, time.Second)
	defer leave()
	_, err = streamtest.Command{Protocol: "SPDY v4.channel.k8s.io", Stdout: io.Discard, URL: k.url + "/attach/default/" + pod + "/web?output=1"}.Run(attached)
	require.NotErrorAs(k.t, err, &refused, "the session lasts until the client closes it")

	// The server listens on the network of the pod, and the kubelet forwards to it.
	for _, tunnel := range []bool{false, true} {
		exetest.Eventually(k.t, time.Minute, func() error { // the server accepts one client at a time
			text, fault, err := k.forward(ctx, pod, tunnel)
			if err == nil && text != "of the pod\n" {
				err = fmt.Errorf("port 8080 of the pod sends %q with error %q", text, fault)
			}
			return err
		})
	}
}

// forward returns the data from a port of a pod, and the error that the kubelet reports on the error stream.
func (k *kubelet) forward(ctx context.Context, pod string, tunnel bool) (text, fault string, err error) {
	f, err := streamtest.Forward(ctx, k.url+"/portForward/default/"+pod, tunnel)
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	stop := context.AfterFunc(ctx, f.Close)
	defer stop()
	conn, err := f.Connect(ctx, 8080)
	if err != nil {
		return "", "", err
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		return string(all), "", err
	}
	if err := conn.CloseWrite(); err != nil { // or the server waits for more data
		return string(all), "", err
	}
	fault, err = conn.ReadError()
	return string(all), fault, err
}

// A kubelet runs pods with volumes, a hosts file, a termination log, limits, probes, logs and commands as plain processes.
// Its runtime is killed and restarted in between.
func TestIntegrationKubelet(t *testing.T) {
	m := newMachine(t)
	p := m.start()
	m.Write("manifests/web.yaml", fmt.Sprintf(webManifest, filepath.Join(m.Path, "host")))
	m.Write("manifests/job.yaml", jobManifest)
	k := startKubelet(t, m.kubelet, m.socket, filepath.Join(m.Path, "manifests"))

	ready := func(s *corev1.PodStatus) bool {
		return s.Phase == corev1.PodRunning && len(s.ContainerStatuses) == 1 && s.ContainerStatuses[0].Ready
	}
	web := k.awaitPod("web", ready)
	require.Regexp(t, `^10\.215\.0\.\d+$`, web.PodIP)
	job := k.awaitPod("job", func(s *corev1.PodStatus) bool { return s.Phase == corev1.PodFailed })
	ended := job.ContainerStatuses[0].State.Terminated
	require.EqualValues(t, 3, ended.ExitCode)
	require.Equal(t, "so it ended\n", ended.Message)

	log, err := k.request(http.MethodGet, "/containerLogs/default/web-node/web")
	require.NoError(t, err)
	require.Equal(t, "from init\nstarted as web-node\n", log)
	check := func() {
		t.Helper()
		require.Contains(t, k.exec("web-node", "cat /etc/podinfo/labels"), `app="shop"`)
		require.Equal(t, "of the host", k.exec("web-node", "cat /var/run/secrets/nodeagent-test/file"))
		require.Contains(t, k.exec("web-node", "cat /etc/hosts"), web.PodIP+"\tweb-node")
		require.Contains(t, k.exec("web-node", "ip -brief address show eth0"), web.PodIP+"/")
		require.Contains(t, k.exec("web-node", "stat -f -c %T /data/memory"), "tmpfs")
		require.Contains(t, k.exec("web-node", "cat /proc/self/cgroup"), m.group.Cgroupfs()+"/")
		k.exec("web-node", "touch /nodeagent-sub/written")
	}
	check()
	hosts, err := os.ReadFile("/etc/hosts")
	require.NoError(t, err)
	require.NotContains(t, string(hosts), web.PodIP)

	p.Kill()
	m.start()
	exetest.Eventually(t, 30*time.Second, func() error { // until the kubelet has reconnected
		_, err := k.request(http.MethodPost, "/run/default/web-node/web?cmd=true")
		return err
	})
	check()
	k.checkSessions("web-node")
	require.Zero(t, k.awaitPod("web", ready).ContainerStatuses[0].RestartCount)

	m.Remove("manifests/web.yaml")
	m.Remove("manifests/job.yaml")
	m.awaitEmpty()
	for _, path := range []string{"/nodeagent-sub", "/etc/podinfo", "/var/run/secrets/nodeagent-test", "/dev/termination-log", "/data/memory"} {
		require.NoDirExists(t, path)
		require.NoFileExists(t, path)
	}
}
