// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// sharedNode is a node on which a kubelet and an agent run in turns, with the same directories and the same containerd.
type sharedNode struct {
	*node
	kubelet string // the kubelet
	ours    string // examples/kubelet
}

func newSharedNode(t *testing.T) *sharedNode {
	needCluster(t)
	return shareNode(t, newNode(t))
}

// shareNode returns a node for both programs.
func shareNode(t *testing.T, node *node) *sharedNode {
	n := &sharedNode{node: node, kubelet: filepath.Join(controlplane.RequirePrograms(t, "kubelet"), "kubelet"), ours: filepath.Join(t.TempDir(), "kubelet")}
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", n.ours, "../kubelet").CombinedOutput()
	require.NoError(t, err, "%s", out)
	// The root directory is a shared mount, as on hosts with systemd. On others the kubelet mounts it on itself, with all mounts below.
	require.NoError(t, unix.Mount(n.state, n.state, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unmountBelow(t, n.state) })
	require.NoError(t, unix.Mount("", n.state, "", unix.MS_SHARED, ""))
	return n
}

// startProgram starts a kubelet, or this module's program in its place, with the same command line. fields are added to the configuration file.
func (n *sharedNode) startProgram(program string, fields map[string]any, flags ...string) *exetest.Process {
	n.t.Helper()
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "containerRuntimeEndpoint": n.lab.Endpoint(),
		"staticPodPath": n.manifests.Path, "podLogsDir": n.logs, "volumePluginDir": filepath.Join(n.state, "plugins-exec"),
		"address": "127.0.0.1", "port": n.port, "healthzPort": 0, "enableServer": true, "fileCheckFrequency": "1s",
		"authentication": map[string]any{"webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": true}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"cgroupRoot":     n.root, "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false, "makeIPTablesUtilChains": false,
		"imageGCHighThresholdPercent": 100, "evictionHard": map[string]string{"memory.available": "1Mi"},
	}
	maps.Copy(config, fields)
	text, err := json.Marshal(config)
	require.NoError(n.t, err)
	file := filepath.Join(n.t.TempDir(), "kubelet.json")
	require.NoError(n.t, os.WriteFile(file, text, 0o600))
	return exetest.StartCommand(n.t, exec.Command(program, append([]string{
		"--config=" + file, "--root-dir=" + n.state, "--cert-dir=" + filepath.Join(n.state, "pki"), "--hostname-override=n1", "--v=2",
	}, flags...)...))
}

// record returns a line for each sandbox, container and mount of a pod.
func (n *sharedNode) record() (lines []string) {
	n.t.Helper()
	ctx := within(n.t, time.Minute)
	snapshot, err := n.client.List(ctx)
	require.NoError(n.t, err)
	for _, s := range snapshot.Sandboxes {
		lines = append(lines, fmt.Sprintf("%s sandbox %d %s %s", s.Pod.Name, s.Attempt, s.State, s.ID))
	}
	for _, c := range snapshot.Containers {
		c, err := n.client.ContainerStatus(ctx, c.ID)
		if errors.Is(err, cri.ErrNotFound) { // removed since the list
			continue
		}
		require.NoError(n.t, err)
		lines = append(lines, fmt.Sprintf("%s container %s %d %s since %s %s", c.Labels[cri.LabelPodName], c.Name, c.Attempt, c.State, c.StartedAt, c.ID))
	}
	lines = append(lines, n.podMounts()...)
	slices.Sort(lines)
	return lines
}

// podMounts returns a line for each mount of a pod.
func (n *sharedNode) podMounts() (lines []string) {
	n.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(n.t, err)
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], n.state+"/pods/") {
			lines = append(lines, "mount "+fields[4])
		}
	}
	return lines
}

// errorsAboutPods returns the error lines of a program about pods and their files, in the format of a kubelet or of ours.
func errorsAboutPods(p *exetest.Process) (lines []string) {
	for line := range strings.Lines(p.Output()) {
		isError := len(line) > 1 && line[0] == 'E' && line[1] >= '0' && line[1] <= '9' || strings.Contains(line, "level=ERROR")
		if isError && (strings.Contains(line, "pod=") || strings.Contains(line, "podUID=") || strings.Contains(line, "/pods/")) {
			lines = append(lines, line)
		}
	}
	return lines
}

// requireNoPodFiles waits until no directory and no mount of a pod is left.
func (n *sharedNode) requireNoPodFiles() {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		left, err := filepath.Glob(filepath.Join(n.state, "pods", "[0-9a-z]*"))
		if mounts := n.podMounts(); err == nil && len(left)+len(mounts) > 0 {
			err = fmt.Errorf("left are %q, and the mounts %q", left, mounts)
		}
		return err
	})
}

// changeOverPods are static pods with what a change of the agent can break.
var changeOverPods = map[string]string{
	"probes.yaml": `apiVersion: v1
kind: Pod
metadata: {name: probes}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "[ -e /data/again ] || { touch /data/again; exit 1; }; touch /tmp/ok; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      startupProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 1, timeoutSeconds: 20, failureThreshold: 30}
      readinessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 2, timeoutSeconds: 20}
      livenessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 3, timeoutSeconds: 20}
      resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {memory: 64Mi}}
      volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /memory}, {name: data, mountPath: /sub, subPath: below}]
  volumes: [{name: data, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]
`,
	"steps.yaml": `apiVersion: v1
kind: Pod
metadata: {name: steps}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
    - {name: first, image: "nodeagent.test/busybox:1", command: [/bin/sh, -c, "sleep 1"]}
    - {name: beside, image: "nodeagent.test/busybox:1", restartPolicy: Always, command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
    - {name: second, image: "nodeagent.test/busybox:1", command: [/bin/sh, -c, "sleep 1"]}
  containers:
    - {name: main, image: "nodeagent.test/busybox:1", command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
`,
	"hooks.yaml": `apiVersion: v1
kind: Pod
metadata: {name: hooks}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      lifecycle: {postStart: {exec: {command: [/bin/sh, -c, "echo started >>/tmp/hook"]}}, preStop: {exec: {command: ["true"]}}}
`,
	"job.yaml": `apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: OnFailure
  containers:
    - {name: main, image: "nodeagent.test/busybox:1", command: [/bin/sh, -c, "sleep 1"]}
`,
}

// A kubelet and an agent take over the static pods of each other. No container starts or stops, and no mount changes.
func TestClusterChangeOverOfStaticPods(t *testing.T) {
	n := newSharedNode(t)
	for name, text := range changeOverPods {
		n.manifests.Write(name, text)
	}
	p := n.startProgram(n.kubelet, nil)
	exetest.Eventually(t, 3*timeout, func() error {
		all := strings.Join(n.record(), "\n")
		for _, want := range []string{"probes-n1 container main 1 running", "steps-n1 container main 0 running", "hooks-n1 container main 0 running", "job-n1 container main 0 exited"} {
			if !strings.Contains(all, want) {
				return fmt.Errorf("no %q in\n%s", want, all)
			}
		}
		return nil
	})
	time.Sleep(10 * time.Second)
	before := n.record()
	t.Logf("before:\n%s", strings.Join(before, "\n"))
	previous := n.kubelet
	for round, program := range []string{n.ours, n.kubelet, n.ours, n.ours} {
		p.Kill()
		p = n.startProgram(program, nil)
		time.Sleep(30 * time.Second)
		require.Equal(t, before, n.record(), "round %d:\n%s", round, p.Output())
		require.Empty(t, errorsAboutPods(p))
		require.Equal(t, program == n.ours && previous == n.kubelet, strings.Contains(p.Output(), "a kubelet has run on the node since this agent"), p.Output())
		previous = program
	}
	for name := range changeOverPods {
		n.manifests.Remove(name)
	}
	n.awaitNoLeftovers(timeout)
	n.requireNoPodFiles()
	p.Terminate(timeout)
}

// The program that takes over completes the starts that the killed one has begun, and starts no container a second time. Nothing is left of the pods
// after their deletion, but for shims of sandboxes that the runtime never listed: a busy containerd can leave the shim of a sandbox whose creation ended
// with the killed program (compare containerd/containerd#10421).
func TestClusterChangeOverDuringStarts(t *testing.T) {
	n := newSharedNode(t)
	programs := []string{n.kubelet, n.ours}
	p := n.startProgram(programs[0], nil)
	listed := map[string]bool{} // IDs of sandboxes
	note := func() map[string]cri.Pod {
		pods, err := n.pods()
		require.NoError(t, err)
		for _, pod := range pods {
			for i := range pod.Sandboxes {
				listed[pod.Sandboxes[i].ID] = true
			}
		}
		return pods
	}
	for round := range 6 {
		var names []string
		for i := range 5 {
			name := fmt.Sprintf("r%d-%d", round, i)
			n.manifests.Write(name+".yaml", podYAML(name, sleeper))
			names = append(names, name+"-n1")
		}
		time.Sleep(rand.N(4 * time.Second))
		p.Kill()
		time.Sleep(time.Second) // the runtime completes its calls
		before := note()
		p = n.startProgram(programs[(round+1)%2], nil)
		after := n.awaitRunning(timeout, names...)
		note()
		for _, name := range names {
			for _, c := range before[name].Containers {
				if c.State == cri.ContainerRunning {
					require.Equal(t, c.ID, after[name].ID, "round %d: the container of pod %s was replaced\n%s", round, name, p.Output())
				}
			}
			n.manifests.Remove(strings.TrimSuffix(name, "-n1") + ".yaml")
		}
		n.awaitNoLeftovers(timeout, "shim")
		n.awaitNoShims(listed)
	}
	p.Terminate(timeout)
}

// awaitNoShims waits until no shim of these sandboxes runs.
func (n *node) awaitNoShims(sandboxes map[string]bool) {
	n.t.Helper()
	exetest.Eventually(n.t, timeout, func() error {
		left, err := n.lab.Leftovers(within(n.t, 10*time.Second))
		if err != nil {
			return err
		}
		for _, line := range left {
			pid, isShim := strings.CutPrefix(line, "shim ")
			args, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline")) // empty: the shim has ended
			_, rest, _ := strings.Cut(string(args), "\x00-id\x00")
			if id, _, _ := strings.Cut(rest, "\x00"); isShim && sandboxes[id] {
				return fmt.Errorf("the shim %s of sandbox %s is left", pid, id)
			}
		}
		return nil
	})
}

const changeOverObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {text: first}
---
apiVersion: v1
kind: Secret
metadata: {name: secret}
stringData: {key: value}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
      - {name: first, image: "nodeagent.test/busybox:1", command: [sh, -c, "true"]}
      - {name: beside, image: "nodeagent.test/busybox:1", restartPolicy: Always, command: [sh, -c, "trap exit TERM; while :; do sleep 0.2; done"]}
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "[ -e /data/again ] || { touch /data/again; exit 1; }; touch /tmp/ok; trap exit TERM; while :; do sleep 0.2; done"]
        startupProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 2, timeoutSeconds: 20, failureThreshold: 30}
        readinessProbe: {exec: {command: [test, -e, /etc/greeting/text]}, periodSeconds: 3, timeoutSeconds: 20}
        livenessProbe: {exec: {command: [test, -e, /tmp/ok]}, periodSeconds: 5, timeoutSeconds: 20}
        resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {memory: 64Mi}}
        volumeMounts:
        - {name: greeting, mountPath: /etc/greeting}
        - {name: secret, mountPath: /etc/secret}
        - {name: greeting, mountPath: /etc/one, subPath: text}
        - {name: names, mountPath: /etc/names}
        - {name: data, mountPath: /data}
        - {name: memory, mountPath: /memory}
      volumes:
      - {name: greeting, configMap: {name: greeting}}
      - {name: secret, secret: {secretName: secret}}
      - {name: names, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
      - {name: data, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory}}
`

// readiness returns, for each pod, its conditions with the time of their last transitions, and the restarts and IDs of its containers.
func (m *member) readiness() (lines []string) {
	m.t.Helper()
	for _, pod := range m.listPods("app=web") {
		for _, c := range pod.Status.Conditions {
			lines = append(lines, fmt.Sprintf("%s %s %s since %s", pod.Name, c.Type, c.Status, c.LastTransitionTime.UTC()))
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			lines = append(lines, fmt.Sprintf("%s %s ready=%t started=%t restarts=%d %s", pod.Name, c.Name, c.Ready, *c.Started, c.RestartCount, c.ContainerID))
		}
		lines = append(lines, fmt.Sprintf("%s %s %s", pod.Name, pod.Status.Phase, pod.Status.PodIP))
	}
	slices.Sort(lines)
	return lines
}

// An agent takes over the pods of a cluster from a kubelet, and gives them back. No container starts or stops, no pod loses its readiness, and volumes
// are updated on.
func TestClusterChangeOver(t *testing.T) {
	n := newSharedNode(t)
	m := n.node.joinCluster(t, map[string]any{"nodeIPs": []string{n.lab.Subnet().Addr().Next().String()}, "adoptPods": true}, false)
	fields := map[string]any{"authentication": map[string]any{
		"x509": m.config["authentication"].(map[string]any)["x509"], "webhook": map[string]any{"enabled": false}, "anonymous": map[string]any{"enabled": false},
	}}
	kubeconfig := "--kubeconfig=" + m.config["kubeconfig"].(string)
	address := "--node-ip=" + n.lab.Subnet().Addr().Next().String()
	m.agent.Terminate(timeout)
	p := n.startProgram(n.kubelet, fields, kubeconfig, address)
	m.apply(changeOverObjects)
	m.do("rollout", "status", "deployment/web", "--timeout=120s")
	time.Sleep(10 * time.Second)
	before, statuses := n.record(), m.readiness()
	t.Logf("before:\n%s\n%s", strings.Join(before, "\n"), strings.Join(statuses, "\n"))
	for round, program := range []string{n.ours, n.kubelet, n.ours} {
		p.Kill()
		p = n.startProgram(program, fields, kubeconfig, address)
		time.Sleep(40 * time.Second)
		require.Equal(t, before, n.record(), "round %d:\n%s", round, p.Output())
		require.Empty(t, errorsAboutPods(p))
		require.Equal(t, statuses, m.readiness(), "round %d:\n%s", round, p.Output())
		text := fmt.Sprintf("text of round %d", round)
		m.do("patch", "configmap", "greeting", "-p", fmt.Sprintf(`{"data": {"text": %q}}`, text))
		exetest.Eventually(t, 3*time.Minute, func() error {
			for _, pod := range m.listPods("app=web") {
				has, err := os.ReadFile(filepath.Join(n.state, "pods", string(pod.UID), "volumes/kubernetes.io~configmap/greeting/text"))
				if err != nil || string(has) != text {
					return fmt.Errorf("pod %s has %q: %w", pod.Name, has, err)
				}
			}
			return nil
		})
	}
	m.do("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
	n.awaitNoLeftovers(timeout)
	n.requireNoPodFiles()
	p.Terminate(timeout)
}
