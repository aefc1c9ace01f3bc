// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: %q}}]
users: [{name: user, user: {token: any}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
`

// newListeningServer returns an API server that listens for HTTP, and the path of a kubeconfig for it.
func newListeningServer(t *testing.T) (server *apiservertest.Server, path string) {
	server = apiservertest.NewServer(apiservertest.Options{})
	t.Cleanup(server.Close)
	listening, stop := server.Listen(true)
	t.Cleanup(stop)
	path = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, kubeconfig, listening.Host), 0o600))
	return server, path
}

// putPod creates a pod on node n1 with the defaults of an API server.
func putPod(t *testing.T, server *apiservertest.Server, pod *corev1.Pod) {
	pod.Spec.NodeName = "n1"
	podapi.Default(pod)
	require.NoError(t, server.Put(pod))
}

func TestNodeOfKubeconfigRunsThePodsOfTheServer(t *testing.T) {
	server, path := newListeningServer(t)
	o := nodetest.Options{Name: "n1", Kubeconfig: path, Machine: machine.Spec{Memory: 4 << 30}, LogLimit: 1}
	o.System.Memory = nodetest.Constant(500 << 20)
	o.Config.Node.NodeIPs = []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	n, err := nodetest.Open(t.Context(), o)
	require.NoError(t, err)
	defer func() { assert.NoError(t, n.Close()) }()
	putPod(t, server, nodetest.NewPod("web", nodetest.Resources{Memory: "64Mi"}, "memory=32Mi"))
	isRunning := func() bool {
		received, ok := n.Pod("web")
		return ok && received.Status.Phase == corev1.PodRunning
	}
	require.Eventually(t, isRunning, time.Minute, 10*time.Millisecond, "the node receives its own status")

	s, err := n.Stats("web")
	require.NoError(t, err)
	assert.Equal(t, uint64(32<<20), s.Memory.Current)
	assert.Equal(t, "default/web", n.Sample().Pods[0].Name)
	assert.Len(t, n.Log(), 1)
	_, other := n.Pod("other")
	assert.False(t, other)
	node, ok := apiservertest.Get[*corev1.Node](server, "", "n1")
	require.True(t, ok)
	assert.Equal(t, "10.1.2.3", node.Status.Addresses[0].Address)

	putPod(t, server, nodetest.NewPod("leak", nodetest.Resources{}, "memory=3500Mi"))
	isPressed := func() bool {
		node, _ := apiservertest.Get[*corev1.Node](server, "", "n1")
		pressure := false
		for _, c := range node.Status.Conditions {
			pressure = pressure || c.Type == corev1.NodeMemoryPressure && c.Status == corev1.ConditionTrue
		}
		return pressure
	}
	require.Eventually(t, isPressed, time.Minute, 10*time.Millisecond, "a node without memory reports it")
}

func TestNodeOfKubeconfigRefusesMethodsOfTheServerInMemory(t *testing.T) {
	_, path := newListeningServer(t)
	n, err := nodetest.Open(t.Context(), nodetest.Options{Name: "n1", Kubeconfig: path})
	require.NoError(t, err)
	assert.Nil(t, n.API())
	for method, err := range map[string]error{
		"Add": n.Add(nodetest.NewPod("web", nodetest.Resources{}, "")), "Delete": n.Delete("web"), "CutNetwork": n.CutNetwork(true),
	} {
		require.EqualError(t, err, fmt.Sprintf("node n1: %s needs an API server in memory: Options.Kubeconfig is %q", method, path))
	}
	require.NoError(t, n.Close())
	require.NoError(t, n.Wait(), "a stopped node")
}

func TestOpenRefusesTwoServers(t *testing.T) {
	server, path := newListeningServer(t)
	_, err := nodetest.Open(t.Context(), nodetest.Options{Kubeconfig: path, API: server})
	require.ErrorContains(t, err, "Options.API is set too")
	var o nodetest.Options
	o.Config.Node.Kubeconfig = path
	_, err = nodetest.Open(t.Context(), o)
	require.ErrorContains(t, err, "use Options.Kubeconfig")
	_, err = nodetest.Open(t.Context(), nodetest.Options{Kubeconfig: path + "-missing"})
	require.ErrorContains(t, err, "kubeconfig-missing: no such file")
	_, err = nodetest.NewLoop(t.Context(), nodetest.Options{Kubeconfig: path})
	require.ErrorContains(t, err, "a Loop has no API server")
	o = nodetest.Options{Kubeconfig: path}
	o.Config.Kubelet.RotateCertificates = true
	_, err = nodetest.Open(t.Context(), o)
	require.ErrorContains(t, err, "rotateCertificates true")
}

func TestLogKeepsTheNewestEntries(t *testing.T) {
	for limit, want := range map[int]int{-1: 0, 2: 2} {
		runNode(t, nodetest.Options{LogLimit: limit}, func(t *testing.T, n *nodetest.Node) {
			require.NoError(t, n.Add(nodetest.NewPod("first", nodetest.Resources{}, ""), nodetest.NewPod("second", nodetest.Resources{}, "exit=7@30s")))
			n.Advance(40 * time.Second)
			require.NoError(t, n.Delete("first"))
			n.Advance(20 * time.Second)
			require.Len(t, n.Log(), want)
			for _, e := range n.Log() {
				assert.Greater(t, e.At, 30*time.Second, "an entry older than the newest: %v", e)
			}
		})
	}
}

// Pods of a cluster mount at least the token of their service account.
func TestPodMountsVolumesAndRunsHooks(t *testing.T) {
	newPod := func() *corev1.Pod {
		pod := nodetest.NewPod("web", nodetest.Resources{}, "volume/data=1Mi")
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"other"}}}
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "data", MountPath: "/part", SubPath: "a/b"}}
		c.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		return pod
	}
	runNode(t, nodetest.Options{}, func(t *testing.T, n *nodetest.Node) {
		pod := newPod()
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "192.0.2.1"}}}
		require.NoError(t, n.Add(pod))
		n.Advance(30 * time.Second)
		started, _ := n.Pod("web")
		assert.Equal(t, corev1.PodRunning, started.Status.Phase, n.Log())
		assert.Len(t, started.Spec.ResourceClaims, 1, "the object stays")
		require.NoError(t, n.Delete("web"))
		n.Advance(5 * time.Second)
		_, exists := n.Pod("web")
		assert.False(t, exists, "the behavior answers the hook at once")
	})
	l, err := nodetest.NewLoop(t.Context(), nodetest.Options{})
	require.NoError(t, err)
	pod := newPod()
	pod.Spec.ResourceClaims, pod.Spec.Containers[0].Resources.Claims = nil, nil // a Loop refuses them
	require.NoError(t, l.Add(pod))
	l.Advance(30 * time.Second)
	assert.Len(t, l.Log().Match("default/web", nodetest.KindPhase, "Running"), 1, l.Log())
}
