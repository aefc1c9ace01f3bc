// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// boundPodYAML is a pod that is bound to the node, bypassing the scheduler. Its parameters are its name, further fields of
// the container and further fields of the spec.
const boundPodYAML = `
---
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: nodeagent.test/busybox:1
    command: [sh, -c, "trap exit TERM; while :; do sleep 0.1; done"]
    %s
  %s
`

// tolerateAll keeps the taints of the node from rejecting pods that test something else.
const tolerateAll = "tolerations: [{operator: Exists}]"

// An error between a node and its cluster is reported by the real API server as by the one in memory. It is in the status of
// a pod, in an event, or in a log line that names the file, the field or the object. Running pods continue.
func TestClusterMisuse(t *testing.T) {
	m := newMember(t, map[string]any{
		"nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "1s",
		"nodeLabels": map[string]string{"node.kubernetes.io/own": "1", "example.com/rack": "r7"},
		"registerWithTaints": []corev1.Taint{
			{Key: "example.com/full", Effect: corev1.TaintEffectNoSchedule}, {Key: "example.com/own", Effect: corev1.TaintEffectNoExecute},
		},
	})
	for _, part := range []struct {
		name string
		run  func(*member)
	}{
		{"bound pods that cannot run", (*member).checkBoundPods},
		{"labels", (*member).checkRestrictedLabels},
		{"credentials", (*member).checkBadCredentials},
		{"two agents of one name", (*member).checkTwoAgents},
		{"node deleted", (*member).checkNodeDeleted},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(m.forTest(t)) })
	}
}

// checkBoundPods binds pods to the node that cannot run there. The controller manager is stopped, because its taint manager
// would delete some of them.
func (m *member) checkBoundPods() {
	require.NoError(m.t, m.Kill(controlplane.ControllerManager))
	const port = `ports: [{containerPort: 47112, hostPort: 47112}]`
	m.apply(fmt.Sprintf(boundPodYAML, "first", port, tolerateAll))
	m.eventually(timeout, "get", "pod", "first", "-o", "jsonpath={.status.phase}")("Running")
	m.apply(fmt.Sprintf(boundPodYAML, "large", `resources: {requests: {cpu: "1000"}}`, tolerateAll) +
		fmt.Sprintf(boundPodYAML, "elsewhere", "", "nodeSelector: {zone: moon}\n  "+tolerateAll) +
		fmt.Sprintf(boundPodYAML, "second", port, tolerateAll) +
		fmt.Sprintf(boundPodYAML, "intolerant", "", "tolerations: [{key: example.com/full, operator: Exists}]") +
		fmt.Sprintf(boundPodYAML, "unscheduled", "", "tolerations: [{key: example.com/own, operator: Exists}]"))
	for name, want := range map[string][2]string{
		"large":      {"OutOfcpu", `Node didn't have enough resource: cpu, requested: 1000000, used: 0, capacity: `},
		"elsewhere":  {"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"second":     {"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"intolerant": {"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
	} {
		reason, message := want[0], want[1]
		m.eventually(timeout, "get", "pod", name, "-o", "jsonpath={.status.phase} {.status.reason}")("Failed " + reason)
		require.Contains(m.t, m.do("get", "pod", name, "-o", "jsonpath={.status.message}"), "Pod was rejected: "+message)
		require.Contains(m.t, m.do("get", "pod", name), " "+reason+" ", "kubectl shows the reason")
		exetest.Eventually(m.t, timeout, func() error { return m.checkEvents(name, []string{"Warning " + reason + " " + message}) })
		m.agent.AwaitLine(timeout, `msg="pod is rejected"`, "pod="+name+" ", "reason="+reason)
	}
	m.eventually(timeout, "get", "pod", "unscheduled", "-o", "jsonpath={.status.phase}")("Running") // as in the kubelet: only the scheduler checks NoSchedule
	m.eventually(timeout, "get", "pod", "first", "-o", "jsonpath={.status.phase}")("Running")
	require.NoError(m.t, m.Restart(m.t.Context(), controlplane.ControllerManager))
	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
}

// checkRestrictedLabels compares the labels that the agent accepts for its Node with the labels that the API server accepts
// from a node.
func (m *member) checkRestrictedLabels() {
	require.Equal(m.t, "1 r7", m.do("get", "node", "n1", "-o", `jsonpath={.metadata.labels.node\.kubernetes\.io/own} {.metadata.labels.example\.com/rack}`))
	client, err := m.Client("system:node:labeled", "system:nodes")
	require.NoError(m.t, err)
	kubeconfig, err := m.KubeconfigAt("https://127.0.0.1:1", "system:node:labeled", "system:nodes")
	require.NoError(m.t, err)
	refused := 0
	for _, label := range []string{
		"kubernetes.io/own", "node-role.kubernetes.io/control-plane", "node-restriction.kubernetes.io/zone", "k8s.io/own", "own.k8s.io/x",
		"kubelet.kubernetes.io/own", "x.node.kubernetes.io/own", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type", "example.com/kubernetes.io",
	} {
		node := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
		node.Name, node.Labels = "labeled", map[string]string{label: "x"}
		err := client.Do(within(m.t, timeout), http.MethodPost, "/api/v1/nodes?dryRun=All", node, nil)
		if err != nil {
			require.Equal(m.t, http.StatusForbidden, controlplane.StatusCode(err), label)
			require.ErrorContains(m.t, err, label)
		}
		agent := newProcesses(m.t).start(map[string]any{"nodeName": "labeled", "objectsDir": "", "kubeconfig": kubeconfig, "nodeLabels": node.Labels})
		if err == nil {
			agent.AwaitLine(timeout, `msg="register node"`, "node=labeled", "connection refused")
			agent.Kill()
			continue
		}
		require.Equal(m.t, 1, agent.Wait(timeout), label)
		require.Contains(m.t, agent.Output(), `agent: node label "`+label+`"="x": `)
		refused++
	}
	require.Equal(m.t, 5, refused)
}

// failedStart starts an agent with an invalid config, and returns its last line.
func (m *member) failedStart(config map[string]any) string {
	m.t.Helper()
	f := newProcesses(m.t)
	config["objectsDir"] = ""
	agent := f.start(config)
	require.Equal(m.t, 1, agent.Wait(timeout))
	lines := strings.Split(strings.TrimSpace(agent.Output()), "\n")
	return lines[len(lines)-1]
}

// checkBadCredentials starts agents with invalid credentials for their node. Their static pods run nevertheless.
func (m *member) checkBadCredentials() {
	expired, err := m.ExpiredKubeconfig("system:node:bad", "system:nodes")
	require.NoError(m.t, err)
	other, err := m.Kubeconfig("system:node:other", "system:nodes")
	require.NoError(m.t, err)
	own, err := m.Kubeconfig("system:node:bad", "system:nodes")
	require.NoError(m.t, err)
	stranger := authtest.NewAuthority(m.t, "stranger")
	ca := filepath.Join(m.t.TempDir(), "ca.crt")
	require.NoError(m.t, os.WriteFile(ca, stranger.PEM(), 0o600))
	foreign := stranger.Sign(m.t, x509.Certificate{Subject: certificateOf("system:node:bad").Subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	key, err := x509.MarshalPKCS8PrivateKey(foreign.PrivateKey)
	require.NoError(m.t, err)
	pair := filepath.Join(m.t.TempDir(), "client.pem")
	require.NoError(m.t, os.WriteFile(pair, append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: foreign.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...), 0o600))

	for name, test := range map[string]struct {
		kubeconfig string
		wantLines  [][]string
	}{
		"expired": {expired, [][]string{
			{"level=ERROR", "file=" + expired, "client-certificate ", "it has expired at "}, {`msg="register node"`, "node=bad", "Unauthorized"},
		}},
		"another node": {other, [][]string{
			{"level=ERROR", "file=" + other, `it is that of node \"other\", and this is node \"bad\"`},
			{`msg="register node"`, "node=bad", `node \"other\" is not allowed to`},
		}},
		"unknown CA":                       {m.editKubeconfig(own, "certificate-authority: ", ca), [][]string{{"certificate-authority ", "it has not signed the certificate of " + m.URL()}}},
		"client certificate of another CA": {m.editKubeconfig(m.editKubeconfig(own, "client-certificate: ", pair), "client-key: ", pair), [][]string{{`msg="register node"`, "node=bad", "Unauthorized"}}},
		"invalid token":                    {m.tokenKubeconfig(own), [][]string{{`msg="register node"`, "node=bad", "Unauthorized"}}},
		"another address":                  {m.editKubeconfig(own, "server: ", "https://127.0.0.1:1"), [][]string{{`msg="register node"`, "node=bad", "connection refused"}}},
		"user without permission":          {m.unprivilegedKubeconfig(), [][]string{{`msg="register node"`, "node=bad", `User \"nobody\" cannot create resource \"nodes\"`}}},
	} {
		m.t.Run(name, func(t *testing.T) {
			f := newProcesses(t)
			f.manifests.Write("still.yaml", podYAML("still", sleeper))
			agent := f.start(map[string]any{"nodeName": "bad", "objectsDir": "", "kubeconfig": test.kubeconfig})
			for _, words := range test.wantLines {
				agent.AwaitLine(timeout, words...)
			}
			agent.AwaitLine(timeout, "msg=status", "pod=still-bad ", "phase=Running")
			agent.Kill()
		})
	}

	for name, path := range map[string]string{
		"missing file": filepath.Join(m.t.TempDir(), "none.conf"), "a directory": m.t.TempDir(), "missing key": m.editKubeconfig(own, "client-key: ", "/nonexistent/key"),
		"invalid YAML": m.editKubeconfig(own, "apiVersion: ", "{["), "empty": m.writeKubeconfig(""),
	} {
		line := m.failedStart(map[string]any{"nodeName": "bad", "kubeconfig": path})
		require.True(m.t, strings.HasPrefix(line, "agent: "), "%s: %s", name, line)
		require.Contains(m.t, line, path, name)
	}
	require.Equal(m.t, "node/n1", m.do("get", "nodes", "-o", "name"), "no agent registers a Node")
}

// writeKubeconfig writes text as a kubeconfig.
func (m *member) writeKubeconfig(text string) (path string) {
	path = filepath.Join(m.t.TempDir(), "kubeconfig")
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// editKubeconfig writes a copy of a kubeconfig with another value of a field.
func (m *member) editKubeconfig(path, field, value string) string {
	m.t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(m.t, err)
	before, after, found := strings.Cut(string(text), field)
	require.True(m.t, found, field)
	end := strings.IndexAny(after, ",}\n")
	require.Positive(m.t, end)
	if field != "apiVersion: " {
		value = fmt.Sprintf("%q", value)
	}
	return m.writeKubeconfig(before + field + value + after[end:])
}

// tokenKubeconfig writes a copy of a kubeconfig with an invalid token.
func (m *member) tokenKubeconfig(path string) string {
	text, err := os.ReadFile(path)
	require.NoError(m.t, err)
	before, after, _ := strings.Cut(string(text), "user: {client-certificate")
	_, after, _ = strings.Cut(after, "}")
	return m.writeKubeconfig(before + "user: {token: nobodys}" + after)
}

// unprivilegedKubeconfig writes a kubeconfig of a valid user without permissions.
func (m *member) unprivilegedKubeconfig() string {
	path, err := m.Kubeconfig("nobody")
	require.NoError(m.t, err)
	return path
}

// checkTwoAgents starts a second agent with the same node name. At least one agent notices the other by the lease, and
// reports it in the log and in an event.
func (m *member) checkTwoAgents() {
	f := newProcesses(m.t)
	config := map[string]any{"nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "1s", "objectsDir": "", "nodeIPs": m.config["nodeIPs"]}
	var err error
	config["kubeconfig"], err = m.Kubeconfig("system:node:n1", "system:nodes")
	require.NoError(m.t, err)
	other := f.start(config)
	exetest.Eventually(m.t, clusterTimeout, func() error {
		for _, agent := range []*exetest.Process{m.agent, other} {
			if strings.Contains(agent.Output(), "another agent has the name of this node") {
				return nil
			}
		}
		return errors.New("no agent has noticed the other")
	})
	exetest.Eventually(m.t, clusterTimeout, func() error {
		return m.checkEvents("n1", []string{"Warning NodeNameConflict Another agent has the name of node n1: "})
	})
	other.Kill()
	m.awaitNode()
}

// checkNodeDeleted deletes the Node. The agent logs one line, and its pods continue. The Node is created by another client
// or, with reregister, by the agent.
func (m *member) checkNodeDeleted() {
	m.apply(fmt.Sprintf(boundPodYAML, "web", "", tolerateAll))
	m.eventually(timeout, "get", "pod", "web", "-o", "jsonpath={.status.phase}")("Running")
	before, _ := m.containers("web")
	m.do("delete", "node", "n1")
	line := m.agent.AwaitLine(timeout, "node=n1", "deleted")
	time.Sleep(3 * time.Second) // in which the agent reads the Node three times
	require.Equal(m.t, 1, strings.Count(m.agent.Output(), line[strings.Index(line, "msg="):]))
	require.Empty(m.t, m.do("get", "nodes", "-o", "name"))
	after, _ := m.containers("web")
	require.Equal(m.t, before, after)

	m.config["reregister"] = true
	defer delete(m.config, "reregister")
	m.agent.Kill()
	m.agent = m.start(m.config)
	m.awaitNode() // an agent registers its node when it starts
	uid := m.do("get", "node", "n1", "-o", "jsonpath={.metadata.uid}")
	m.do("delete", "node", "n1")
	exetest.Eventually(m.t, clusterTimeout, func() error {
		now, err := m.try("", "get", "node", "n1", "-o", "jsonpath={.metadata.uid}")
		if err == nil && (now == "" || now == uid) {
			err = fmt.Errorf("UID %q", now)
		}
		return err
	})
	m.awaitNode()
	require.Contains(m.t, m.do("get", "node", "n1", "-o", "jsonpath={.spec.taints[*].key}"), "example.com/own", "the Node has the taints of the first registration")
	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNoLeftovers(timeout)
}
