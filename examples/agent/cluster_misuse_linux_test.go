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

// boundInSpiteOf is a pod that somebody has bound to the node, past the scheduler. What follows are more fields of its spec.
const boundInSpiteOf = `
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

// tolerateAll is for those pods that are about something else.
const tolerateAll = "tolerations: [{operator: Exists}]"

// What goes wrong between a node and its cluster is said on the real API server as it is said on the one in memory: in the status of a
// pod, in an event, or in a line that names the file, the field or the object. What runs goes on.
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
		{"bound in spite of", (*member).boundInSpiteOf},
		{"labels", (*member).restrictedLabels},
		{"credentials", (*member).badCredentials},
		{"two agents", (*member).twoAgents},
		{"deleted", (*member).nodeDeleted},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(m.in(t)) })
	}
}

// boundInSpiteOf has pods bound to the node that cannot run there. What ends pods for taints does not run meanwhile, or it would delete
// what is looked at.
func (m *member) boundInSpiteOf() {
	require.NoError(m.t, m.Kill(controlplane.ControllerManager))
	const port = `ports: [{containerPort: 47112, hostPort: 47112}]`
	m.apply(fmt.Sprintf(boundInSpiteOf, "first", port, tolerateAll))
	m.eventually(timeout, "get", "pod", "first", "-o", "jsonpath={.status.phase}")("Running")
	m.apply(fmt.Sprintf(boundInSpiteOf, "large", `resources: {requests: {cpu: "1000"}}`, tolerateAll) +
		fmt.Sprintf(boundInSpiteOf, "elsewhere", "", "nodeSelector: {zone: moon}\n  "+tolerateAll) +
		fmt.Sprintf(boundInSpiteOf, "second", port, tolerateAll) +
		fmt.Sprintf(boundInSpiteOf, "intolerant", "", "tolerations: [{key: example.com/full, operator: Exists}]") +
		fmt.Sprintf(boundInSpiteOf, "unscheduled", "", "tolerations: [{key: example.com/own, operator: Exists}]"))
	for name, want := range map[string][2]string{
		"large":      {"OutOfcpu", `Node didn't have enough resource: cpu, requested: 1000000, used: 0, capacity: `},
		"elsewhere":  {"NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"second":     {"NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"intolerant": {"TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"},
	} {
		reason, message := want[0], want[1]
		m.eventually(timeout, "get", "pod", name, "-o", "jsonpath={.status.phase} {.status.reason}")("Failed " + reason)
		require.Contains(m.t, m.do("get", "pod", name, "-o", "jsonpath={.status.message}"), "Pod was rejected: "+message)
		require.Contains(m.t, m.do("get", "pod", name), " "+reason+" ", "what kubectl shows")
		exetest.Eventually(m.t, timeout, func() error { return m.tells(name, []string{"Warning " + reason + " " + message}) })
		m.agent.AwaitLine(timeout, `msg="pod is rejected"`, "pod="+name+" ", "reason="+reason)
	}
	m.eventually(timeout, "get", "pod", "unscheduled", "-o", "jsonpath={.status.phase}")("Running") // as in the kubelet: the scheduler is who asks
	m.eventually(timeout, "get", "pod", "first", "-o", "jsonpath={.status.phase}")("Running")
	require.NoError(m.t, m.Restart(m.t.Context(), controlplane.ControllerManager))
	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNothing(timeout)
}

// restrictedLabels compares the labels that the agent takes for its Node with those that the API server takes from a node.
func (m *member) restrictedLabels() {
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

// starts starts an agent that cannot go on, and returns why.
func (m *member) starts(config map[string]any) string {
	m.t.Helper()
	f := newProcesses(m.t)
	config["objectsDir"] = ""
	agent := f.start(config)
	require.Equal(m.t, 1, agent.Wait(timeout))
	lines := strings.Split(strings.TrimSpace(agent.Output()), "\n")
	return lines[len(lines)-1]
}

// badCredentials starts agents whose kubeconfigs are not those of their nodes. What they were told to run without an API server runs.
func (m *member) badCredentials() {
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
		says       [][]string
	}{
		"expired": {expired, [][]string{
			{"level=ERROR", "file=" + expired, "client-certificate ", "it has expired at "}, {`msg="register node"`, "node=bad", "Unauthorized"},
		}},
		"another node": {other, [][]string{
			{"level=ERROR", "file=" + other, `it is that of node \"other\", and this is node \"bad\"`},
			{`msg="register node"`, "node=bad", `node \"other\" is not allowed to`},
		}},
		"unknown CA":       {m.edited(own, "certificate-authority: ", ca), [][]string{{"certificate-authority ", "it has not signed the certificate of " + m.URL()}}},
		"of a stranger":    {m.edited(m.edited(own, "client-certificate: ", pair), "client-key: ", pair), [][]string{{`msg="register node"`, "node=bad", "Unauthorized"}}},
		"no such user":     {m.tokenConfig(own), [][]string{{`msg="register node"`, "node=bad", "Unauthorized"}}},
		"another address":  {m.edited(own, "server: ", "https://127.0.0.1:1"), [][]string{{`msg="register node"`, "node=bad", "connection refused"}}},
		"may not register": {m.nobody(), [][]string{{`msg="register node"`, "node=bad", `User \"nobody\" cannot create resource \"nodes\"`}}},
	} {
		m.t.Run(name, func(t *testing.T) {
			f := newProcesses(t)
			f.manifests.Write("still.yaml", podYAML("still", sleeper))
			agent := f.start(map[string]any{"nodeName": "bad", "objectsDir": "", "kubeconfig": test.kubeconfig})
			for _, words := range test.says {
				agent.AwaitLine(timeout, words...)
			}
			agent.AwaitLine(timeout, "msg=status", "pod=still-bad ", "phase=Running")
			agent.Kill()
		})
	}
	for name, path := range map[string]string{
		"not there": filepath.Join(m.t.TempDir(), "none.conf"), "a directory": m.t.TempDir(), "no key": m.edited(own, "client-key: ", "/nonexistent/key"),
		"no YAML": m.edited(own, "apiVersion: ", "{["), "empty": m.written(""),
	} {
		line := m.starts(map[string]any{"nodeName": "bad", "kubeconfig": path})
		require.True(m.t, strings.HasPrefix(line, "agent: "), "%s: %s", name, line)
		require.Contains(m.t, line, path, name)
	}
	require.Equal(m.t, "node/n1", m.do("get", "nodes", "-o", "name"), "none of them has made a Node")
}

// written writes a kubeconfig.
func (m *member) written(text string) (path string) {
	path = filepath.Join(m.t.TempDir(), "kubeconfig")
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// edited writes a kubeconfig that is another one but for the value of a field.
func (m *member) edited(path, field, value string) string {
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
	return m.written(before + field + value + after[end:])
}

// tokenConfig writes a kubeconfig with a token that is nobody's.
func (m *member) tokenConfig(path string) string {
	text, err := os.ReadFile(path)
	require.NoError(m.t, err)
	before, after, _ := strings.Cut(string(text), "user: {client-certificate")
	_, after, _ = strings.Cut(after, "}")
	return m.written(before + "user: {token: nobodys}" + after)
}

// nobody writes a kubeconfig of a user that the API server knows and that may do nothing.
func (m *member) nobody() string {
	path, err := m.Kubeconfig("nobody")
	require.NoError(m.t, err)
	return path
}

// twoAgents starts a second agent of the same name elsewhere. They notice each other by their lease, and say so in a line and an event.
func (m *member) twoAgents() {
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
		return errors.New("nobody has noticed")
	})
	exetest.Eventually(m.t, clusterTimeout, func() error {
		return m.tells("n1", []string{"Warning NodeNameConflict Another agent has the name of node n1: "})
	})
	other.Kill()
	m.awaitNode()
}

// nodeDeleted deletes the Node. One line says so, and what runs goes on, until somebody makes the Node again or, with reregister, the
// agent does.
func (m *member) nodeDeleted() {
	m.apply(fmt.Sprintf(boundInSpiteOf, "web", "", tolerateAll))
	m.eventually(timeout, "get", "pod", "web", "-o", "jsonpath={.status.phase}")("Running")
	before, _ := m.containers("web")
	m.do("delete", "node", "n1")
	line := m.agent.AwaitLine(timeout, "node=n1", "deleted")
	time.Sleep(3 * time.Second) // in which it looks at the node three times
	require.Equal(m.t, 1, strings.Count(m.agent.Output(), line[strings.Index(line, "msg="):]))
	require.Empty(m.t, m.do("get", "nodes", "-o", "name"))
	after, _ := m.containers("web")
	require.Equal(m.t, before, after)

	m.config["reregister"] = true
	defer delete(m.config, "reregister")
	m.agent.Kill()
	m.agent = m.start(m.config)
	m.awaitNode() // an agent that starts registers its node
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
	require.Contains(m.t, m.do("get", "node", "n1", "-o", "jsonpath={.spec.taints[*].key}"), "example.com/own", "it is registered as at first")
	m.do("delete", "pods", "--all", "--wait=false")
	m.eventually(clusterTimeout, "get", "pods", "-o", "name")("")
	m.awaitNothing(timeout)
}
