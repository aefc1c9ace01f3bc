// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// memoryNode is an agent with an API server in memory, whose pods are plain processes. It has no containers, no
// authorization and no controllers.
type memoryNode struct {
	files
	*apiservertest.Server

	agent  *exetest.Process
	config map[string]any
}

// newMemoryNode starts an API server, but no agent yet.
func newMemoryNode(t *testing.T, config map[string]any) *memoryNode {
	t.Helper()
	m := &memoryNode{files: newProcesses(t), Server: apiservertest.NewServer(apiservertest.Options{}), config: map[string]any{"objectsDir": ""}}
	access, stop := m.Listen(false)
	t.Cleanup(stop)
	m.config["kubeconfig"] = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(m.config["kubeconfig"].(string), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %q, tls-server-name: example.com}}]
users: [{name: u, user: {token: nobody-looks-at-it}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, access.Host, base64.StdEncoding.EncodeToString(access.CAData)), 0o600))
	maps.Copy(m.config, config)
	return m
}

// startReady starts the agent, and waits until its node is ready.
func (m *memoryNode) startReady() {
	m.t.Helper()
	m.agent = m.start(m.config)
	m.awaitNode(corev1.ConditionTrue)
}

// awaitNode waits until the Ready condition of the node has the status want.
func (m *memoryNode) awaitNode(want corev1.ConditionStatus) {
	m.t.Helper()
	exetest.Eventually(m.t, timeout, func() error {
		if got := m.readyStatus(); got != want {
			return fmt.Errorf("the Ready condition of the node is %q", got)
		}
		return nil
	})
}

// readyStatus returns the status of the Ready condition of the node; empty without a Node.
func (m *memoryNode) readyStatus() corev1.ConditionStatus {
	node, _ := apiservertest.Get[*corev1.Node](m.Server, "", "n1")
	if node != nil {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status
			}
		}
	}
	return ""
}

// bind creates pods that are bound to the node.
func (m *memoryNode) bind(pods ...*corev1.Pod) {
	m.t.Helper()
	for _, pod := range pods {
		require.NoError(m.t, m.Put(pod))
	}
}

// pod returns a pod of the API server.
func (m *memoryNode) pod(name string) *corev1.Pod {
	m.t.Helper()
	pod, ok := apiservertest.Get[*corev1.Pod](m.Server, "default", name)
	require.True(m.t, ok, "there is no pod %s", name)
	return pod
}

// awaitPod waits until want returns nil for a pod of the API server.
func (m *memoryNode) awaitPod(name string, want func(*corev1.Pod) error) *corev1.Pod {
	m.t.Helper()
	var pod *corev1.Pod
	exetest.Eventually(m.t, timeout, func() error {
		var ok bool
		if pod, ok = apiservertest.Get[*corev1.Pod](m.Server, "default", name); !ok {
			return errors.New("there is no pod " + name)
		}
		return want(pod)
	})
	return pod
}

// awaitPhase waits until a pod has a phase and a reason.
func (m *memoryNode) awaitPhase(name string, phase corev1.PodPhase, reason string) *corev1.Pod {
	m.t.Helper()
	return m.awaitPod(name, func(pod *corev1.Pod) error {
		if pod.Status.Phase != phase || pod.Status.Reason != reason {
			return fmt.Errorf("pod %s is %s %q: %s", name, pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
		}
		return nil
	})
}

// events returns the events about an object, as "reason: message".
func (m *memoryNode) events(name string) (all []string) {
	for _, e := range apiservertest.List[*corev1.Event](m.Server) {
		if e.InvolvedObject.Name == name {
			all = append(all, e.Reason+": "+e.Message)
		}
	}
	return all
}

// boundPod is a pod of one container that runs a shell command, bound to the node.
func boundPod(name, script string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: new(int64(2)),
			Containers: []corev1.Container{{Name: "main", Image: "nodeagent.test/busybox:1", Command: []string{"/bin/sh", "-c", script}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	podapi.Default(pod) // like an API server
	return pod
}
