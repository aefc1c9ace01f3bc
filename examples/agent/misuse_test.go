// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/certtest"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// tolerateAllTaints adds a toleration of all taints to a pod, and returns it.
func tolerateAllTaints(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// hostPortPod returns a pod with a host port.
func hostPortPod(name string) *corev1.Pod {
	pod := tolerateAllTaints(boundPod(name, sleeper))
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 47111, HostPort: 47111, Protocol: corev1.ProtocolTCP}}
	return pod
}

// A pod that is bound to a node on which it cannot run fails with the reason, and a log line names it. It preempts no
// running pod. Annotations make no pod of the API server critical.
func TestBoundPodsThatCannotRunFail(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"registerWithTaints": []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoExecute}}})
	m.startReady()
	m.bind(hostPortPod("first"))
	m.awaitPhase("first", corev1.PodRunning, "")

	large := tolerateAllTaints(boundPod("large", sleeper))
	large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	fake := large.DeepCopy()
	fake.Name, fake.Annotations = "fake", map[string]string{
		"kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "scheduler.alpha.kubernetes.io/critical-pod": "",
	}
	fake.Spec.PriorityClassName = "system-node-critical" // only an API server derives the priority from it
	elsewhere := tolerateAllTaints(boundPod("elsewhere", sleeper))
	elsewhere.Spec.NodeSelector = map[string]string{"zone": "moon"}
	mirror := tolerateAllTaints(boundPod("mirror", sleeper))
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "kubernetes.io/config.source": "file"}
	m.bind(large, fake, elsewhere, hostPortPod("second"), boundPod("intolerant", sleeper), mirror)
	for name, reason := range map[string]string{
		"large": "OutOfcpu", "fake": "OutOfcpu", "elsewhere": "NodeAffinity", "second": "NodePorts", "intolerant": "TaintToleration",
	} {
		message := strings.TrimPrefix(m.awaitPhase(name, corev1.PodFailed, reason).Status.Message, "Pod was rejected: ")
		require.NotContains(t, message, "\n")
		m.agent.AwaitLine(timeout, `msg="pod is rejected"`, "pod="+name+" ", "reason="+reason)
		exetest.Eventually(t, timeout, func() error {
			if !slices.Contains(m.events(name), reason+": "+message) {
				return fmt.Errorf("events: %q", m.events(name))
			}
			return nil
		})
	}
	require.Equal(t, corev1.PodRunning, m.pod("first").Status.Phase)
	exetest.Eventually(t, timeout, func() error { // a mirror pod without a static pod is deleted, and not run
		if _, there := apiservertest.Get[*corev1.Pod](m.Server, "default", "mirror"); there {
			return fmt.Errorf("the mirror pod is not deleted")
		}
		return nil
	})
	require.NotContains(t, m.agent.Output(), "pod=mirror ")
}

// After the Node is deleted, the agent logs one line and sends no more updates of its Node and its Lease. Its pods continue.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"nodeStatusUpdateFrequency": "1s"})
	m.startReady()
	m.bind(boundPod("web", sleeper))
	m.awaitPhase("web", corev1.PodRunning, "")
	node, ok := apiservertest.Get[*corev1.Node](m.Server, "", "n1")
	require.True(t, ok)
	require.NoError(t, m.Remove(node))
	line := m.agent.AwaitLine(timeout, "node=n1", "deleted")
	m.ForgetRequests()
	time.Sleep(4 * time.Second)
	require.Equal(t, 1, strings.Count(m.agent.Output(), line[strings.Index(line, "msg="):]))
	var writes []string
	for _, r := range m.Requests(apiservertest.Match{}) {
		if (r.Resource == "nodes" || r.Resource == "leases") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
			writes = append(writes, r.Verb+" "+r.Resource)
		}
	}
	require.LessOrEqual(t, len(writes), 1, "at most one request was under way: %q", writes)
	require.Equal(t, corev1.PodRunning, m.pod("web").Status.Phase)
}

// Two agents with the same node name notice each other by their Lease. They report it in the log and in an event.
func TestTwoAgentsOfOneName(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"nodeLeaseDurationSeconds": 4})
	m.startReady()
	other := &memoryNode{files: newProcesses(t), Server: m.Server, config: m.config}
	other.startReady()
	exetest.Eventually(t, 45*time.Second, func() error {
		for _, agent := range []*exetest.Process{m.agent, other.agent} {
			if strings.Contains(agent.Output(), "another agent has the name of this node") {
				return nil
			}
		}
		return fmt.Errorf("no agent has noticed the other")
	})
	exetest.Eventually(t, timeout, func() error {
		for _, e := range m.events("n1") {
			if strings.HasPrefix(e, "NodeNameConflict: Another agent has the name of node n1: ") {
				return nil
			}
		}
		return fmt.Errorf("events: %q", m.events("n1"))
	})
}

// An agent with an invalid node config exits at once, with a line that names the field or the value.
func TestAgentExitsOnInvalidNodeConfig(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, nil)
	missing := filepath.Join(t.TempDir(), "none.conf")
	for _, test := range []struct {
		config map[string]any
		wants  []string
	}{
		{map[string]any{"nodeLabels": map[string]string{"kubernetes.io/own": "x"}}, []string{"kubernetes.io/own"}},
		{map[string]any{"nodeLabels": map[string]string{"a b": "x"}}, []string{`a b`}},
		{map[string]any{"registerWithTaints": []corev1.Taint{{Key: "a b", Effect: corev1.TaintEffectNoExecute}}}, []string{"registerWithTaints[0].key", "a b"}},
		{map[string]any{"registerWithTaints": []corev1.Taint{{Key: "a", Effect: "Nope"}}}, []string{"registerWithTaints[0].effect", "Nope"}},
		{map[string]any{"systemReserved": map[string]string{"memory": "100Ti"}}, []string{"memory", "100Ti"}},
		{map[string]any{"kubeReserved": map[string]string{"cpu": "many"}}, []string{"kubeReserved", "quantities must match"}},
		{map[string]any{"kubeconfig": missing}, []string{missing, "no such file"}},
		{map[string]any{"nodeName": "N_1"}, []string{"N_1"}},
	} {
		config := maps.Clone(m.config)
		maps.Copy(config, test.config)
		agent := m.start(config)
		require.Equal(t, 1, agent.Wait(timeout))
		lines := strings.Split(strings.TrimSpace(agent.Output()), "\n")
		last := lines[len(lines)-1]
		require.True(t, strings.HasPrefix(last, "agent: "), "%q", lines)
		for _, want := range test.wants {
			require.Contains(t, last, want)
		}
	}
}

// The agent logs invalid credentials with the field of the kubeconfig. Its static pods run nevertheless.
func TestAgentLogsInvalidCredentials(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, nil)
	ca, err := certtest.NewAuthority("test")
	require.NoError(t, err)
	now := time.Now()
	kubeconfigWithCA := func(ca []byte) string {
		text, err := os.ReadFile(m.config["kubeconfig"].(string))
		require.NoError(t, err)
		if ca == nil {
			return string(text)
		}
		before, after, _ := strings.Cut(string(text), `certificate-authority-data: "`)
		_, after, _ = strings.Cut(after, `"`)
		path := filepath.Join(t.TempDir(), "ca.crt")
		require.NoError(t, os.WriteFile(path, ca, 0o600))
		return before + fmt.Sprintf("certificate-authority: %q", path) + after
	}
	kubeconfigWithCertificate := func(user string, from, to time.Time) string {
		cert, key, err := ca.ClientCertificate(user, from, to)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "client.pem")
		require.NoError(t, os.WriteFile(path, append(cert, key...), 0o600))
		return strings.Replace(kubeconfigWithCA(nil), "token: nobody-looks-at-it", fmt.Sprintf("client-certificate: %q, client-key: %q", path, path), 1)
	}

	for name, test := range map[string]struct {
		text  string
		wants []string
	}{
		"expired":      {kubeconfigWithCertificate("system:node:n1", now.Add(-2*time.Hour), now.Add(-time.Hour)), []string{"client-certificate ", "it has expired at "}},
		"another node": {kubeconfigWithCertificate("system:node:n2", now.Add(-time.Hour), now.Add(time.Hour)), []string{`it is that of node \"n2\", and this is node \"n1\"`}},
		"unknown CA":   {kubeconfigWithCA(ca.PEM()), []string{"certificate-authority ", "it has not signed the certificate of https://"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "kubeconfig")
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			f := newProcesses(t)
			f.manifests.Write("still.yaml", podYAML("still", sleeper))
			agent := f.start(map[string]any{"objectsDir": "", "kubeconfig": path})
			agent.AwaitLine(timeout, test.wants...)
			agent.AwaitLine(timeout, "msg=status", "pod=still-n1 ", "phase=Running")
		})
	}
}
