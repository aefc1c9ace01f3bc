// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
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
)

// cluster is a control plane with virtual nodes.
type cluster struct {
	t       *testing.T
	kubectl string
	admin   string // path of a kubeconfig
}

func newCluster(t *testing.T) *cluster {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("needs programs that take long to build: `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	bin := controlplane.RequirePrograms(t, controlplane.Kubectl)
	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true, Scheduler: true})
	admin, err := plane.Kubeconfig("tester", "system:masters")
	require.NoError(t, err)
	return &cluster{t: t, kubectl: filepath.Join(bin, controlplane.Kubectl), admin: admin}
}

// runKubectl runs kubectl, which must succeed, and returns its output.
func (c *cluster) runKubectl(stdin string, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.kubectl, append([]string{"--kubeconfig", c.admin}, args...)...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), "HOME="+c.t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(c.t, err, "kubectl %s: %s", args, out)
	return string(out)
}

// readyByNode returns the number of running pods of a Deployment, by node.
func (c *cluster) readyByNode(app string) map[string]int {
	c.t.Helper()
	var list corev1.PodList
	require.NoError(c.t, json.Unmarshal([]byte(c.runKubectl("", "get", "pods", "-l", "app="+app, "-o", "json")), &list))
	count := map[string]int{}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			count[p.Spec.NodeName]++
		}
	}
	return count
}

const workload = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: red}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 20
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: main
        image: registry.invalid/none:1
        env: [{name: COLOR, valueFrom: {configMapKeyRef: {name: settings, key: color}}}]
        readinessProbe: {httpGet: {port: 80}}
        resources: {requests: {cpu: 200m, memory: 64Mi}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  completions: 6
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "registry.invalid/none:1"}]
`

// Three nodes become ready, the scheduler spreads a Deployment of 20 pods over them, and all pods run. A Job completes and a
// node is drained. After a restart of the program all pods run again.
func TestClusterVirtualNodes(t *testing.T) {
	c := newCluster(t)
	args := []string{"-kubeconfig", c.admin, "-cpu", "4", "-memory", "4Gi", "-jobs", "1s", "-v", "n1", "n2", "n3"}
	p := program.Start(t, args...)
	exetest.Eventually(t, limit, func() error {
		if out := c.runKubectl("", "get", "nodes", "--no-headers"); strings.Count(out, " Ready ") != 3 {
			return fmt.Errorf("not all nodes are ready:\n%s", out)
		}
		return nil
	})
	began := time.Now()
	c.runKubectl(workload, "apply", "-f", "-")
	c.runKubectl("", "rollout", "status", "deployment/web", "--timeout=60s")
	t.Logf("20 pods run after %v", time.Since(began).Round(10*time.Millisecond))
	byNode := c.readyByNode("web")
	require.Len(t, byNode, 3)
	for node, n := range byNode {
		require.InDelta(t, 20.0/3, n, 1, node)
	}
	c.runKubectl("", "wait", "--for=condition=complete", "job/work", "--timeout=60s")
	t.Log(c.runKubectl("", "get", "nodes"))

	c.runKubectl("", "drain", "n1", "--timeout=60s")
	c.runKubectl("", "patch", "deployment/web", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/topologySpreadConstraints"}]`)
	c.runKubectl("", "rollout", "status", "deployment/web", "--timeout=60s")
	require.NotContains(t, c.readyByNode("web"), "n1")

	require.Zero(t, p.Terminate(limit))
	program.Start(t, args...)
	exetest.Eventually(t, limit, func() error {
		if byNode := c.readyByNode("web"); byNode["n2"]+byNode["n3"] != 20 {
			return fmt.Errorf("not all pods run: %v", byNode)
		}
		return nil
	})
	c.runKubectl("", "delete", "deployment/web", "job/work", "--timeout=60s")
	c.runKubectl("", "wait", "--for=delete", "pod", "-l", "app=web", "--timeout=60s")
}

const leaking = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: leak}
spec:
  replicas: 3
  selector: {matchLabels: {app: leak}}
  template:
    metadata:
      labels: {app: leak}
      annotations: {nodetest/usage: "memory=ramp(64Mi,1200Mi,1m)"}
    spec:
      containers: [{name: main, image: "registry.invalid/none:1"}]
`

// The pods of a Deployment leak memory until their node evicts some of them. The controller manager taints the node, the ReplicaSet
// replaces the evicted pods, and the replacements wait until the scheduler finds a second node for them.
func TestClusterPressureMovesPodsToAnotherNode(t *testing.T) {
	c := newCluster(t)
	program.Start(t, "-kubeconfig", c.admin, "-memory", "2Gi", "-v", "n1")
	c.runKubectl(leaking, "apply", "-f", "-")
	c.runKubectl("", "rollout", "status", "deployment/leak", "--timeout=60s")
	require.Equal(t, map[string]int{"n1": 3}, c.readyByNode("leak"))

	exetest.Eventually(t, 3*limit, func() error {
		taints := c.runKubectl("", "get", "node", "n1", "-o", "jsonpath={.spec.taints[*].key}")
		if !strings.Contains(taints, corev1.TaintNodeMemoryPressure) {
			return fmt.Errorf("node n1 has the taints %q", taints)
		}
		pods := c.runKubectl("", "get", "pods", "-l", "app=leak", "-o", `jsonpath={range .items[*]}{.spec.nodeName} {.status.phase} {.status.reason}{"\n"}{end}`)
		if !strings.Contains(pods, "n1 Failed Evicted\n") || !strings.Contains(pods, " Pending \n") {
			return fmt.Errorf("not both an evicted pod and one that waits for a node:\n%s", pods)
		}
		return nil
	})
	require.Contains(t, c.runKubectl("", "get", "events"), "The node was low on resource: memory.")

	program.Start(t, "-kubeconfig", c.admin, "-memory", "16Gi", "-v", "n2")
	exetest.Eventually(t, 3*limit, func() error {
		byNode := c.readyByNode("leak")
		if byNode["n1"]+byNode["n2"] != 3 || byNode["n1"] == 3 {
			return fmt.Errorf("not all pods run, some of them on n2: %v", byNode)
		}
		return nil
	})
	t.Log(c.runKubectl("", "get", "pods", "-o", "wide"))
}
