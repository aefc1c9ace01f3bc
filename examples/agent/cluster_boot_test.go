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

// plainPod is a pod with the token and the variables that every pod has.
const plainPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: nodeagent.test/busybox:1, command: [sh, -c, "trap exit TERM; test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token of $KUBERNETES_SERVICE_HOST; while :; do sleep 0.1; done"]}]
`

// configuredPod is a pod with a config map and a secret.
const configuredPod = `
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

// restartOffline kills the agent and starts another while its API server is unavailable.
func (m *member) restartOffline(setUnavailable func(bool)) {
	m.agent.Kill()
	setUnavailable(true)
	m.agent = m.start(m.config)
	m.agent.AwaitLine(timeout, "pods loaded")
}

// awaitStored waits until pods are in the store, which the agent writes a moment after it receives them.
func (m *member) awaitStored(names ...string) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() error {
		text, err := os.ReadFile(filepath.Join(m.state, "pods.store"))
		for _, name := range names {
			if err == nil && !strings.Contains(string(text), name) {
				err = fmt.Errorf("pod %s is not stored", name)
			}
		}
		return err
	})
}

// killAndAwaitRestart kills the container of a pod, and waits until the agent has started another.
func (m *member) killAndAwaitRestart(pod string) {
	m.t.Helper()
	old, err := m.runningContainer(pod)
	require.NoError(m.t, err)
	m.killContainer(old)
	began := time.Now()
	exetest.Eventually(m.t, 2*timeout, func() error {
		c, err := m.runningContainer(pod)
		if err == nil && c.ID == old.ID {
			err = fmt.Errorf("the container is not restarted")
		}
		return err
	})
	m.t.Logf("%s was restarted %v after its container was killed", pod, time.Since(began).Round(10*time.Millisecond))
}

// An agent that starts without its API server restarts exited containers. Their volumes keep their tokens, config maps and
// secrets; with keepObjects their variables do, too. The API server gets all restarts once it is available.
func TestClusterStartsContainersWithoutAPIServer(t *testing.T) {
	m := newProxied(t, map[string]any{"keepObjects": true})
	m.apply(settings)
	names := []string{"plain0", "plain1", "plain2", "configured1", "configured2"}
	for _, name := range names {
		template := plainPod
		if strings.HasPrefix(name, "configured") {
			template = configuredPod
		}
		m.apply(fmt.Sprintf(template, name))
	}
	m.do("wait", "--for=condition=ready", "pod", "--all", "--timeout=60s")
	m.awaitStored(names...)
	m.requireObjectFiles()
	sandbox := m.sandboxOf("configured1")

	m.restartOffline(m.proxy.SetUnavailable)
	m.killAndAwaitRestart("plain1")
	m.killAndAwaitRestart("configured1")
	m.proxy.SetUnavailable(false)
	m.restartOffline(m.proxy.SetBlackHole)
	m.killAndAwaitRestart("plain2")
	m.killAndAwaitRestart("configured2")
	m.proxy.SetBlackHole(false)
	m.awaitNode()
	for _, name := range names[1:] {
		m.eventually(2*timeout, "get", "pod", name, "-o", "jsonpath={.status.containerStatuses[0].restartCount} {.status.phase}")("1 Running")
	}
	require.Equal(t, sandbox, m.sandboxOf("configured1"), "the sandbox is kept")
	require.Equal(t, "red swordfish\nred swordfish\n", m.log("configured1", "main"))
	m.do("delete", "pod", "configured1", "configured2", "--wait=false")
	m.eventually(clusterTimeout, "get", "pod", "configured1", "configured2", "--ignore-not-found", "-o", "name")("")
	m.awaitObjectFiles(1) // the config map of every pod

	m.config["keepObjects"] = false
	m.restartOffline(m.proxy.SetUnavailable)
	require.NoDirExists(t, filepath.Join(m.state, "objects"), "no objects are stored without keepObjects")
	m.killAndAwaitRestart("plain0")
	m.awaitLog("plain0", "main", "token of 10.96.0.1")
	m.proxy.SetUnavailable(false)
	m.do("delete", "pod", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
}

// sandboxOf returns the sandbox of a pod's running container.
func (m *member) sandboxOf(pod string) string {
	m.t.Helper()
	c, err := m.runningContainer(pod)
	require.NoError(m.t, err)
	return c.SandboxID
}

func (m *member) awaitNode() {
	m.t.Helper()
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
}

// awaitObjectFiles waits until n objects are on disk, and returns their files.
func (m *member) awaitObjectFiles(n int) (files []os.DirEntry) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() (err error) {
		files, err = os.ReadDir(filepath.Join(m.state, "objects"))
		files = slices.DeleteFunc(files, func(f os.DirEntry) bool { return strings.HasPrefix(f.Name(), ".") }) // temporary files
		if err == nil && len(files) != n {
			err = fmt.Errorf("%d objects are stored, want %d", len(files), n)
		}
		return err
	})
	return files
}

// requireObjectFiles checks that only the user of the agent can read the objects on disk.
func (m *member) requireObjectFiles() {
	m.t.Helper()
	for _, f := range m.awaitObjectFiles(3) { // also the certificate of the API server
		info, err := f.Info()
		require.NoError(m.t, err)
		require.Equal(m.t, fs.FileMode(0o600), info.Mode())
	}
}

// killLostTasks kills tasks that run although containerd 2.4 lists them as exited. It can lose a task if the caller of
// StartContainer dies during the call. No CRI call stops the task, and the container cannot be removed before it exits.
func (m *member) killLostTasks() {
	const refusal = "cannot delete running task "
	for line := range strings.Lines(m.agent.Output()) {
		_, rest, refused := strings.Cut(line, refusal)
		if id, _, ok := strings.Cut(rest, ":"); refused && ok {
			for _, pid := range processesOf(m.t, id) {
				m.t.Logf("container %s runs, unknown to containerd", id)
				if p, err := os.FindProcess(pid); err == nil {
					_ = p.Kill() // the process may have exited
				}
			}
		}
	}
}

// An agent that is killed at random while users change a Deployment loses no pod, creates none twice and restarts no
// container.
func TestClusterAgentKilledAtRandom(t *testing.T) {
	kills := 10
	if os.Getenv("NODEAGENT_SOAK") != "" {
		kills = 100
	}
	m := newMember(t, map[string]any{})
	m.apply(deployment)
	seen := newContainerWatch(m.node)
	actions := []func(){
		func() { m.do("scale", "deployment/web", fmt.Sprintf("--replicas=%d", 2+rand.IntN(5))) },
		func() { m.do("set", "env", "deployment/web", fmt.Sprintf("VERSION=%d", rand.Int32())) },
		func() {
			if pods := m.listPods("app=web"); len(pods) > 0 {
				m.do("delete", "pod", pods[rand.IntN(len(pods))].Name, "--ignore-not-found", "--wait=false")
			}
		},
		func() {
			if pods := m.listPods("app=web"); len(pods) > 0 {
				m.do("delete", "pod", pods[rand.IntN(len(pods))].Name, "--ignore-not-found", "--grace-period=0", "--force", "--wait=false")
			}
		},
	}

	for range kills {
		actions[rand.IntN(len(actions))]()
		seen.updateUntil(time.Now().Add(rand.N(3 * time.Second)))
		m.restart()
	}

	m.do("scale", "deployment/web", "--replicas=4")
	m.do("rollout", "status", "deployment/web", "--timeout=120s")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "-o", `jsonpath={.items[*].status.containerStatuses[*].restartCount}`)("0 0 0 0")
	exetest.Eventually(t, timeout, func() error {
		seen.update()
		m.killLostTasks()
		pods, err := m.pods()
		if err == nil && len(pods) != 4 {
			err = fmt.Errorf("the runtime has %d pods, want 4", len(pods))
		}
		return err
	})
	for pod := range seen.instances {
		require.LessOrEqual(t, seen.countStarts(pod), 1, "%s:\n%s", pod, seen.history(pod))
	}
	t.Logf("%d kills, %d pods", kills, len(seen.instances))
	m.do("delete", "deployment/web", "--wait=false")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "-o", "name")("")
	// containerd 2.4 can lose a shim if the caller of RunPodSandbox dies during the call. No CRI call shows it.
	m.awaitNoLeftovers(timeout, "shim", "runc", "mount")
}
