// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/seed81659283/nodeagent/apiserver/cert"
	"github.com/seed81659283/nodeagent/internal/controlplane"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// clusterWait limits waits for a real control plane.
const clusterWait = time.Minute

// realNode is a node of a real control plane, with the permissions of a node.
type realNode struct {
	*testing.T
	*controlplane.Plane
	name     string
	config   *rest.Config
	reporter *heartbeat.Reporter
	logs     *logs
	stop     func()
}

func (n *realNode) open(change func(*heartbeat.ReporterOptions)) *realNode {
	n.Helper()
	path, err := n.Kubeconfig("system:node:"+n.name, "system:nodes")
	require.NoError(n, err)
	n.config, err = cert.LoadKubeconfig(path)
	require.NoError(n, err)
	require.NoError(n, cert.CheckCredentials(n.config, n.name, time.Now()))
	n.logs = &logs{}
	o := heartbeat.ReporterOptions{
		Config: nodestatus.Config{Name: n.name}, Runtime: &agent{status: ready()}, Hosts: nodestatus.Lookup{},
		Capacity: nodestatus.Root{FS: os.DirFS("/"), RootFS: func(context.Context) (int64, error) { return 1 << 30, nil }},
		Logger:   n.logs.logger(),
	}
	if change != nil {
		change(&o)
	}
	n.reporter, err = heartbeat.NewReporter(n.config, o)
	require.NoError(n, err)
	l, err := heartbeat.NewLease(n.config, heartbeat.LeaseOptions{Reporter: n.reporter, Logger: n.logs.logger()})
	require.NoError(n, err)
	n.stop = run(n.T, n.reporter.Run, l.Run)
	return n
}

// get returns the Node, or nil.
func (n *realNode) get() *corev1.Node {
	node := &corev1.Node{}
	if n.Admin().Do(n.Context(), http.MethodGet, "/api/v1/nodes/"+n.name, nil, node) != nil {
		return nil
	}
	return node
}

func (n *realNode) lease() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	if n.Admin().Do(n.Context(), http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/"+n.name, nil, lease) != nil {
		return nil
	}
	return lease
}

func (n *realNode) isReady() bool {
	node := n.get()
	return node != nil && isReady(node)
}

func (n *realNode) await(what string, holds func() bool) time.Duration {
	n.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > clusterWait {
			require.FailNow(n, what, "not within %v: %q", clusterWait, n.logs.with(""))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// TestCluster runs nodes on a real control plane, with its admission, node life cycle controller and garbage collector.
func TestCluster(t *testing.T) {
	if os.Getenv(controlplane.RequiredEnv) != "required" {
		t.Skipf("takes a minute and needs programs that take long to build: run `make cluster`, which sets %s", controlplane.RequiredEnv)
	}
	plane := controlplane.Start(t, controlplane.Options{ControllerManager: true})
	for name, test := range map[string]func(*realNode){
		"registers": testRegisters, "deleted": testDeleted, "reregisters": testReregisters, "two-agents": testTwoAgents, "refused": testRefused,
	} {
		t.Run(name, func(t *testing.T) {
			test(&realNode{T: t, Plane: plane, name: name})
		})
	}
	t.Run("restart", func(t *testing.T) { testRestart(&realNode{T: t, Plane: plane, name: "restart"}) })
}

// A node is registered with its taints, and taints and labels that other clients add survive a restart of the agent.
func testRegisters(n *realNode) {
	taint := corev1.Taint{Key: "example.com/own", Value: "1", Effect: corev1.TaintEffectPreferNoSchedule}
	withTaint := func(o *heartbeat.ReporterOptions) { o.Config.Taints = []corev1.Taint{taint} }
	n.open(withTaint)
	n.Logf("ready after %v", n.await("ready", n.isReady))
	n.await("lease", func() bool { return n.lease() != nil })
	node := n.get()
	assert.Contains(n, node.Spec.Taints, taint)
	assert.Equal(n, node.UID, n.lease().OwnerReferences[0].UID)
	assert.Equal(n, nodestatus.Version, node.Status.NodeInfo.KubeletVersion)
	n.stop()

	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/other", Effect: corev1.TaintEffectNoSchedule})
	node.Labels["example.com/zone"] = "a"
	node.APIVersion, node.Kind = "v1", "Node"
	n.await("edit", func() bool {
		node.ResourceVersion = n.get().ResourceVersion
		return n.Admin().Do(n.Context(), http.MethodPut, "/api/v1/nodes/"+n.name, node, nil) == nil
	})
	n.open(withTaint)
	n.await("known", func() bool { return n.reporter.Node().Labels["example.com/zone"] == "a" })
	require.NoError(n, n.reporter.Report(n.Context()))
	keys := map[string]bool{}
	for _, t := range n.get().Spec.Taints {
		keys[t.Key] = true
	}
	assert.True(n, keys["example.com/own"] && keys["example.com/other"], "%v", keys)
	assert.Empty(n, n.logs.with("level=ERROR"))
}

func (n *realNode) remove() {
	require.NoError(n, n.Admin().Do(n.Context(), http.MethodDelete, "/api/v1/nodes/"+n.name, nil, nil))
}

// A deleted Node is not created again, and its lease is removed with it.
func testDeleted(n *realNode) {
	n.open(nil)
	n.await("ready", n.isReady)
	n.await("lease", func() bool { return n.lease() != nil })
	n.remove()
	n.await("noticed", func() bool { return len(n.logs.with("node object was deleted")) == 1 })
	n.await("lease removed", func() bool { return n.lease() == nil })
	time.Sleep(12 * time.Second)
	assert.Nil(n, n.get())
	assert.Nil(n, n.lease())
}

func testReregisters(n *realNode) {
	n.open(func(o *heartbeat.ReporterOptions) { o.Reregister = true })
	n.await("ready", n.isReady)
	was := n.get().UID
	n.remove()
	n.await("registered again", func() bool { return n.isReady() && n.get().UID != was })
	n.await("lease", func() bool {
		l := n.lease()
		return l != nil && len(l.OwnerReferences) > 0 && l.OwnerReferences[0].UID == n.get().UID
	})
}

func testTwoAgents(n *realNode) {
	n.open(nil)
	n.await("lease", func() bool { return n.lease() != nil })
	second := (&realNode{T: n.T, Plane: n.Plane, name: n.name}).open(nil)
	n.await("noticed", func() bool {
		return len(n.logs.with("another agent has the name"))+len(second.logs.with("another agent has the name")) > 0
	})
	assert.True(n, n.isReady())
}

// With credentials of another node, nothing is registered, and the reason is logged.
func testRefused(n *realNode) {
	path, err := n.Kubeconfig("system:node:somebody-else", "system:nodes")
	require.NoError(n, err)
	config, err := cert.LoadKubeconfig(path)
	require.NoError(n, err)
	require.ErrorContains(n, cert.CheckCredentials(config, n.name, time.Now()), `it is that of node "somebody-else", and this is node "refused"`)
	n.logs = &logs{}
	r, err := heartbeat.NewReporter(config, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: n.name}, Logger: n.logs.logger()})
	require.NoError(n, err)
	stop := run(n.T, r.Run)
	n.await("refusal", func() bool {
		return len(n.logs.with(`is not allowed to modify node`))+len(n.logs.with("forbidden")) > 0
	})
	stop()
	assert.Nil(n, n.get())

	config.CAFile, config.CAData = "", otherCA(n.T)
	n.logs = &logs{}
	r, err = heartbeat.NewReporter(config, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: n.name}, Logger: n.logs.logger()})
	require.NoError(n, err)
	defer run(n.T, r.Run)()
	n.await("unknown authority", func() bool {
		return len(n.logs.with("certificate-authority-data: it has not signed the certificate of")) > 0
	})
}

// The API server is killed and restarted: the node stays ready, and its lease is renewed.
func testRestart(n *realNode) {
	n.open(nil)
	n.await("lease", func() bool { return n.isReady() && n.lease() != nil })
	since := condition(n.get(), corev1.NodeReady).LastTransitionTime
	require.NoError(n, n.Restart(n.Context(), controlplane.APIServer))
	before := time.Now()
	n.Logf("renewed after %v", n.await("renewed", func() bool {
		l := n.lease()
		return l != nil && l.Spec.RenewTime.After(before)
	}))
	require.NoError(n, n.reporter.Report(n.Context()))
	assert.Equal(n, since, condition(n.get(), corev1.NodeReady).LastTransitionTime)
}

// otherCA returns the certificate of an authority that did not sign the certificate of the server.
func otherCA(t *testing.T) []byte {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}
