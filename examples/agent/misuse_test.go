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

// tolerating returns a pod that tolerates all taints.
func tolerating(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// onPort returns a pod that has a port of the node.
func onPort(name string) *corev1.Pod {
	pod := tolerating(boundPod(name, sleeper))
	pod.Spec.HostNetwork = true
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 47111, HostPort: 47111, Protocol: corev1.ProtocolTCP}}
	return pod
}

// A pod that was bound to the node although it cannot run there fails with the reason, in a line that names it, and nothing that runs ends
// for it. No annotation makes a pod of the API server one that others make room for.
func TestBoundInSpiteOf(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"registerWithTaints": []corev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoExecute}}})
	m.begin()
	m.bind(onPort("first"))
	m.awaitPhase("first", corev1.PodRunning, "")

	large := tolerating(boundPod("large", sleeper))
	large.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000")}
	fake := large.DeepCopy()
	fake.Name, fake.Annotations = "fake", map[string]string{
		"kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "scheduler.alpha.kubernetes.io/critical-pod": "",
	}
	fake.Spec.PriorityClassName = "system-node-critical" // which an API server makes a priority of
	elsewhere := tolerating(boundPod("elsewhere", sleeper))
	elsewhere.Spec.NodeSelector = map[string]string{"zone": "moon"}
	mirror := tolerating(boundPod("mirror", sleeper))
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash", "kubernetes.io/config.source": "file"}
	m.bind(large, fake, elsewhere, onPort("second"), boundPod("intolerant", sleeper), mirror)
	for name, reason := range map[string]string{
		"large": "OutOfcpu", "fake": "OutOfcpu", "elsewhere": "NodeAffinity", "second": "NodePorts", "intolerant": "TaintToleration",
	} {
		why := strings.TrimPrefix(m.awaitPhase(name, corev1.PodFailed, reason).Status.Message, "Pod was rejected: ")
		require.NotContains(t, why, "\n")
		m.agent.AwaitLine(timeout, `msg="pod is rejected"`, "pod="+name+" ", "reason="+reason)
		exetest.Eventually(t, timeout, func() error {
			if !slices.Contains(m.events(name), reason+": "+why) {
				return fmt.Errorf("events: %q", m.events(name))
			}
			return nil
		})
	}
	require.Equal(t, corev1.PodRunning, m.pod("first").Status.Phase)
	exetest.Eventually(t, timeout, func() error { // a mirror of no static pod is removed, and not run
		if _, there := apiservertest.Get[*corev1.Pod](m.Server, "default", "mirror"); there {
			return fmt.Errorf("the mirror is still there")
		}
		return nil
	})
	require.NotContains(t, m.agent.Output(), "pod=mirror ")
}

// When somebody deletes the Node, one line says so, and the agent asks for nothing that it would have to be there for; pods go on.
func TestNodeDeleted(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"nodeStatusUpdateFrequency": "1s"})
	m.begin()
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
	require.LessOrEqual(t, len(writes), 1, "one may have been under way: %q", writes)
	require.Equal(t, corev1.PodRunning, m.pod("web").Status.Phase)
}

// Two agents of one name see each other by their lease, and say so in a line and an event each.
func TestTwoAgentsOfOneName(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, map[string]any{"nodeLeaseDurationSeconds": 4})
	m.begin()
	other := &memoryNode{files: newProcesses(t), Server: m.Server, config: m.config}
	other.begin()
	exetest.Eventually(t, 45*time.Second, func() error {
		for _, agent := range []*exetest.Process{m.agent, other.agent} {
			if strings.Contains(agent.Output(), "another agent has the name of this node") {
				return nil
			}
		}
		return fmt.Errorf("nobody has noticed")
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

// A config that cannot be that of a node ends the agent at once, with a line that names the field.
func TestBadNodes(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, nil)
	missing := filepath.Join(t.TempDir(), "none.conf")
	for _, test := range []struct {
		config map[string]any
		wants  []string
	}{
		{map[string]any{"nodeLabels": map[string]string{"kubernetes.io/own": "x"}}, []string{"kubernetes.io/own"}},
		{map[string]any{"nodeLabels": map[string]string{"a b": "x"}}, []string{`a b`}},
		{map[string]any{"registerWithTaints": []corev1.Taint{{Key: "a b", Effect: corev1.TaintEffectNoExecute}}}, []string{"taint", "a b"}},
		{map[string]any{"registerWithTaints": []corev1.Taint{{Key: "a", Effect: "Nope"}}}, []string{"taint", "Nope"}},
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

// Credentials that cannot be those of the node are named in a line, with the field of the kubeconfig. What was wanted last runs all the same.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	m := newMemoryNode(t, nil)
	ca, err := certtest.NewAuthority("test")
	require.NoError(t, err)
	now := time.Now()
	cluster := func(of []byte) string {
		text, err := os.ReadFile(m.config["kubeconfig"].(string))
		require.NoError(t, err)
		if of == nil {
			return string(text)
		}
		before, after, _ := strings.Cut(string(text), `certificate-authority-data: "`)
		_, after, _ = strings.Cut(after, `"`)
		path := filepath.Join(t.TempDir(), "ca.crt")
		require.NoError(t, os.WriteFile(path, of, 0o600))
		return before + fmt.Sprintf("certificate-authority: %q", path) + after
	}
	signed := func(user string, from, to time.Time) string {
		cert, key, err := ca.ClientCertificate(user, from, to)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "client.pem")
		require.NoError(t, os.WriteFile(path, append(cert, key...), 0o600))
		return strings.Replace(cluster(nil), "token: nobody-looks-at-it", fmt.Sprintf("client-certificate: %q, client-key: %q", path, path), 1)
	}
	for name, test := range map[string]struct {
		text  string
		wants []string
	}{
		"expired":      {signed("system:node:n1", now.Add(-2*time.Hour), now.Add(-time.Hour)), []string{"client-certificate ", "it has expired at "}},
		"another node": {signed("system:node:n2", now.Add(-time.Hour), now.Add(time.Hour)), []string{`it is that of node \"n2\", and this is node \"n1\"`}},
		"unknown CA":   {cluster(ca.PEM()), []string{"certificate-authority ", "it has not signed the certificate of https://"}},
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
