// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

const settings = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {text: swordfish}
`

// plain is a pod with the token and the variables that every pod has.
const plain = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "trap exit TERM; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token of $KUBERNETES_SERVICE_HOST; while :; do sleep 0.1; done"]}]
`

// configured is a pod with a config map and a secret.
const configured = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; echo $COLOR $(cat /password/text); while :; do sleep 0.1; done"]
    env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}]
    volumeMounts: [{name: password, mountPath: /password}]
  volumes: [{name: password, secret: {secretName: password}}]
`

// boot kills the agent and starts another, whose API server is away.
func (m *member) boot(away func(bool)) {
	m.agent.Kill()
	away(true)
	m.agent = m.start(m.config)
	m.agent.AwaitLine(timeout, "pods loaded")
}

// stored waits until pods are on disk, which they are a moment after the agent was told of them.
func (m *member) stored(names ...string) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() error {
		text, err := os.ReadFile(filepath.Join(m.state, "pods.store"))
		for _, name := range names {
			if err == nil && !strings.Contains(string(text), name) {
				err = fmt.Errorf("pod %s is not on disk", name)
			}
		}
		return err
	})
}

// dies kills the container of a pod, and waits until the agent has started another.
func (m *member) dies(pod string) {
	m.t.Helper()
	old, err := m.running(pod)
	require.NoError(m.t, err)
	m.kill(old)
	began := time.Now()
	exetest.Eventually(m.t, 2*timeout, func() error {
		c, err := m.running(pod)
		if err == nil && c.ID == old.ID {
			err = fmt.Errorf("it has not been started again")
		}
		return err
	})
	m.t.Logf("%s was started again %v after its death", pod, time.Since(began).Round(10*time.Millisecond))
}

// An agent that is started without its API server, the machine having had no network, starts containers again that end: with the tokens,
// config maps and secrets in their volumes as they are, and with keepObjects those of their variables. When the API server is there it is
// told all of it.
func TestClusterBoot(t *testing.T) {
	m := newProxied(t, map[string]any{"keepObjects": true})
	m.apply(settings)
	names := []string{"plain0", "plain1", "plain2", "configured1", "configured2"}
	for _, name := range names {
		template := plain
		if strings.HasPrefix(name, "configured") {
			template = configured
		}
		m.apply(fmt.Sprintf(template, name))
	}
	m.do("wait", "--for=condition=ready", "pod", "--all", "--timeout=60s")
	m.stored(names...)
	m.requireKept()
	sandbox := m.sandboxOf("configured1")

	m.boot(m.proxy.SetUnavailable)
	m.dies("plain1")
	m.dies("configured1")
	m.proxy.SetUnavailable(false)
	m.boot(m.proxy.SetBlackHole)
	m.dies("plain2")
	m.dies("configured2")
	m.proxy.SetBlackHole(false)
	m.awaitNode()
	for _, name := range names[1:] {
		m.eventually(2*timeout, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	}
	require.Equal(t, sandbox, m.sandboxOf("configured1"), "its sandbox is the same")
	require.Equal(t, "red swordfish\nred swordfish\n", m.log("configured1", "main"))
	m.do("delete", "pod", "configured1", "configured2", "--wait=false")
	m.eventually(clusterTimeout, "get", "pod", "configured1", "configured2", "--ignore-not-found", "-o", "name")("")
	m.awaitKept(1) // what comes with every pod

	m.config["keepObjects"] = false
	m.boot(m.proxy.SetUnavailable)
	require.NoDirExists(t, filepath.Join(m.state, "objects"), "nothing is kept unless somebody says so")
	m.dies("plain0")
	m.awaitLog("plain0", "main", "token of 10.96.0.1")
	m.proxy.SetUnavailable(false)
	m.do("delete", "pod", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNothing(timeout)
}

// sandboxOf returns the sandbox of a pod's running container.
func (m *member) sandboxOf(pod string) string {
	m.t.Helper()
	c, err := m.running(pod)
	require.NoError(m.t, err)
	return c.SandboxID
}

func (m *member) awaitNode() {
	m.t.Helper()
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
}

// awaitKept waits until so many objects are on disk, and returns them.
func (m *member) awaitKept(n int) (files []os.DirEntry) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() (err error) {
		files, err = os.ReadDir(filepath.Join(m.state, "objects"))
		files = slices.DeleteFunc(files, func(f os.DirEntry) bool { return strings.HasPrefix(f.Name(), ".") }) // that are being written
		if err == nil && len(files) != n {
			err = fmt.Errorf("%d objects are kept, not %d", len(files), n)
		}
		return err
	})
	return files
}

// requireKept checks that objects are on disk, for nobody but the user of the agent.
func (m *member) requireKept() {
	m.t.Helper()
	for _, f := range m.awaitKept(3) { // and the certificate of the API server
		info, err := f.Info()
		require.NoError(m.t, err)
		require.Equal(m.t, fs.FileMode(0o600), info.Mode())
	}
}

// endUnknownTasks kills what containerd runs and takes for ended: 2.4 can lose sight of a task when the caller of StartContainer dies in the
// middle of it. No CRI call ends that, and the container cannot be removed before it has.
func (m *member) endUnknownTasks() {
	const refusal = "cannot delete running task "
	for line := range strings.Lines(m.agent.Output()) {
		_, rest, refused := strings.Cut(line, refusal)
		if id, _, ok := strings.Cut(rest, ":"); refused && ok {
			for _, pid := range processesOf(m.t, id) {
				m.t.Logf("containerd does not know that container %s runs", id)
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill() // it may have ended
				}
			}
		}
	}
}

// An agent that dies at any moment of what users do with a Deployment loses no pod, makes nothing twice and restarts nothing.
func TestClusterKilledAtRandom(t *testing.T) {
	kills := 10
	if os.Getenv("NODEAGENT_SOAK") != "" {
		kills = 100
	}
	m := newMember(t, map[string]any{})
	m.apply(deployment)
	seen := newWatch(m.node)
	actions := []func(){
		func() { m.do("scale", "deployment/web", fmt.Sprintf("--replicas=%d", 2+rand.IntN(5))) },
		func() { m.do("set", "env", "deployment/web", fmt.Sprintf("VERSION=%d", rand.Int32())) },
		func() {
			if pods := m.list("app=web"); len(pods) > 0 {
				m.do("delete", "pod", pods[rand.IntN(len(pods))].Name, "--ignore-not-found", "--wait=false")
			}
		},
		func() {
			if pods := m.list("app=web"); len(pods) > 0 {
				m.do("delete", "pod", pods[rand.IntN(len(pods))].Name, "--ignore-not-found", "--grace-period=0", "--force", "--wait=false")
			}
		},
	}
	for range kills {
		actions[rand.IntN(len(actions))]()
		seen.until(time.Now().Add(rand.N(3 * time.Second)))
		m.restart()
	}
	m.do("scale", "deployment/web", "--replicas=4")
	m.do("rollout", "status", "deployment/web", "--timeout=120s")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "-o", `jsonpath={.items[*].status.containerStatuses[*].restartCount}`)("0 0 0 0")
	exetest.Eventually(t, timeout, func() error {
		seen.look()
		m.endUnknownTasks()
		pods, err := m.pods()
		if err == nil && len(pods) != 4 {
			err = fmt.Errorf("the runtime has %d pods", len(pods))
		}
		return err
	})
	for pod := range seen.instances {
		require.LessOrEqual(t, seen.starts(pod), 1, "%s:\n%s", pod, seen.history(pod))
	}
	t.Logf("%d deaths, %d pods", kills, len(seen.instances))
	m.do("delete", "deployment/web", "--wait=false")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "-o", "name")("")
	// containerd 2.4 can lose a shim when the caller of RunPodSandbox dies in the middle of it; no CRI call shows it.
	m.awaitNothing(timeout, "shim", "runc", "mount")
}
