// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/faultproxy"
)

// member is an agent on the only node of a cluster with a real control plane.
type member struct {
	*node
	*controlplane.Plane

	proxy   *faultproxy.Proxy // between the agent and the API server; nil: none
	agent   *exetest.Process
	admin   string // kubeconfig of a user with all permissions
	kubectl string // path of kubectl
	config  map[string]any
}

// newMember starts a control plane and an agent, and waits until the node is ready.
func newMember(t *testing.T, config map[string]any) *member {
	return startMember(t, config, false)
}

// newProxied is newMember with a proxy between the agent and the API server.
func newProxied(t *testing.T, config map[string]any) *member {
	return startMember(t, config, true)
}

func startMember(t *testing.T, config map[string]any, proxied bool) *member {
	needCluster(t)
	n := newNode(t)
	config["nodeIPs"] = []string{n.lab.Subnet().Addr().Next().String()}
	return n.joinCluster(t, config, proxied)
}

func needCluster(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("needs programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
}

// joinCluster starts a control plane, and an agent on the node n.
func (n *node) joinCluster(t *testing.T, config map[string]any, proxied bool) *member {
	bin := controlplane.RequirePrograms(t, controlplane.Kubectl)
	m := &member{
		node: n, Plane: controlplane.Start(t, controlplane.Options{ControllerManager: true, Scheduler: true}),
		kubectl: filepath.Join(bin, controlplane.Kubectl), config: config,
	}
	var err error
	m.admin, err = m.Kubeconfig("nodeagent-test-user", "system:masters")
	require.NoError(t, err)
	if proxied {
		m.startProxy(t)
	} else {
		m.config["kubeconfig"], err = m.Kubeconfig("system:node:n1", "system:nodes")
		require.NoError(t, err)
	}
	m.config["objectsDir"] = ""
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, m.CA(), 0o600))
	m.config["authentication"] = map[string]any{"x509": map[string]any{"clientCAFile": ca}}
	m.restart()
	began := time.Now()
	m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)("True")
	t.Logf("the node is ready %v after the start of the agent", time.Since(began).Round(10*time.Millisecond))
	return m
}

// startProxy puts a proxy between the agent and the API server. The kubeconfig of the agent has the address of the proxy.
func (m *member) startProxy(t *testing.T) {
	server, err := m.ServerCertificate("proxy")
	require.NoError(t, err)
	client, err := m.ClientCertificate("system:node:n1", "system:nodes")
	require.NoError(t, err)
	m.proxy = faultproxy.Start(t, faultproxy.Options{Target: m.URL(), Roots: m.RootPool(), Server: server, Client: client})
	m.config["kubeconfig"], err = m.KubeconfigAt(m.proxy.URL(), "system:node:n1", "system:nodes")
	require.NoError(t, err)
}

// restart kills the agent, if one runs, and starts another.
func (m *member) restart() {
	if m.agent != nil {
		m.agent.Kill()
	}
	m.agent = m.start(m.config)
}

// try runs kubectl and returns its output.
func (m *member) try(stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), exetest.TimeoutFactor*timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.kubectl, append([]string{"--kubeconfig", m.admin}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+m.t.TempDir())
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &errs)
	}
	return strings.TrimSpace(out.String()), nil
}

// do runs kubectl, which must succeed, and returns its output.
func (m *member) do(args ...string) string {
	m.t.Helper()
	out, err := m.try("", args...)
	require.NoError(m.t, err)
	return out
}

// apply applies objects with kubectl.
func (m *member) apply(yaml string) {
	m.t.Helper()
	_, err := m.try(yaml, "apply", "-f", "-")
	require.NoError(m.t, err)
}

// eventually returns a function that waits until kubectl prints want.
func (m *member) eventually(limit time.Duration, args ...string) func(want string) {
	return func(want string) {
		m.t.Helper()
		exetest.Eventually(m.t, limit, func() error {
			got, err := m.try("", args...)
			if err == nil && got != want {
				err = fmt.Errorf("kubectl %s prints %q, want %q", strings.Join(args, " "), got, want)
			}
			return err
		})
	}
}

// listPods returns the pods with a label.
func (m *member) listPods(selector string) []corev1.Pod {
	m.t.Helper()
	var pods corev1.PodList
	require.NoError(m.t, json.Unmarshal([]byte(m.do("get", "pods", "-l", selector, "-o", "json")), &pods))
	return pods.Items
}

const deployment = `
apiVersion: v1
kind: ConfigMap
metadata: {name: greeting}
data: {text: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/os: linux}
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]
        readinessProbe: {exec: {command: [test, -e, /etc/greeting/text]}, periodSeconds: 1}
        resources: {requests: {cpu: 10m, memory: 8Mi}}
        env:
        - {name: VERSION, value: "1"}
        - {name: TEXT, valueFrom: {configMapKeyRef: {name: greeting, key: text}}}
        volumeMounts: [{name: greeting, mountPath: /etc/greeting}]
      volumes: [{name: greeting, configMap: {name: greeting}}]
`

// A Deployment works on this node: it runs, scales, rolls out without unavailable pods, and is deleted. The restart of the
// agent affects no container.
func TestClusterDeployment(t *testing.T) {
	m := newMember(t, map[string]any{})
	m.apply(deployment)
	m.do("rollout", "status", "deployment/web", "--timeout=60s")
	pods := m.listPods("app=web")
	require.Len(t, pods, 5)
	for _, pod := range pods {
		require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		require.NotEmpty(t, pod.Status.PodIP)
		require.Contains(t, m.do("get", "events", "--field-selector", "involvedObject.name="+pod.Name, "-o", "jsonpath={.items[*].reason}"), "Started")
	}

	before, _ := m.containers(pods[0].Name)
	m.restart()
	m.do("scale", "deployment/web", "--replicas=8")
	m.do("rollout", "status", "deployment/web", "--timeout=60s")
	after, _ := m.containers(pods[0].Name)
	require.Equal(t, before, after, "no container is restarted when the agent is killed")

	m.do("set", "env", "deployment/web", "VERSION=2")
	m.do("rollout", "status", "deployment/web", "--timeout=120s")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "--field-selector", "status.phase!=Running", "-o", "name")("")
	m.do("delete", "deployment/web", "--wait=false")
	m.eventually(timeout, "get", "pods", "-l", "app=web", "-o", "name")("")
	exetest.Eventually(t, timeout, func() error {
		left, err := m.pods()
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%d pods remain", len(left))
		}
		return err
	})
}
