// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodetest"
)

// requireRunning requires that the named pods run.
func (f *fleet) requireRunning(names ...string) {
	f.t.Helper()
	for _, name := range names {
		require.Equal(f.t, corev1.PodRunning, f.pod(name).Status.Phase, name)
	}
}

// Pods that are bound and deleted while the watch is cut are seen after it is resumed.
func TestFleetResumesWatch(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.add(nodetest.NewPod("old", nodetest.Resources{}, ""))
		f.advance(time.Second)
		f.requireRunning("old")
		f.server.ForgetRequests()
		f.server.DisconnectAll()
		f.add(nodetest.NewPod("new", nodetest.Resources{}, ""))
		require.NoError(t, f.server.Delete(f.pod("old"), nil))
		f.advance(time.Minute)
		f.requireRunning("new")
		_, found := apiservertest.Get[*corev1.Pod](f.server, "default", "old")
		require.False(t, found)
		require.Zero(t, f.count("list", "pods"), "the watch is resumed from its version")
	})
}

// The API server has no events since the version of the watch: the Fleet lists again, and its running pods stay as they are.
func TestFleetListsAfterCompaction(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.add(nodetest.NewPod("old", nodetest.Resources{}, ""))
		f.advance(time.Second)
		started := f.pod("old").Status.ContainerStatuses[0].State.Running.StartedAt
		f.server.ForgetRequests()
		f.server.SetUnavailable(true)
		f.add(nodetest.NewPod("new", nodetest.Resources{}, ""))
		f.server.Compact()
		f.advance(10 * time.Second)
		f.server.SetUnavailable(false)
		f.advance(time.Minute)
		f.requireRunning("old", "new")
		require.Positive(t, f.count("list", "pods"))
		require.Equal(t, started, f.pod("old").Status.ContainerStatuses[0].State.Running.StartedAt)
	})
}

// While the API server is unavailable for a minute, pods exit. Afterwards all statuses and leases are sent, and there were few requests.
func TestFleetSurvivesOutage(t *testing.T) {
	runFleet(t, 3, nil, func(f *fleet) {
		var names []string
		for i := range 30 {
			p := nodetest.NewPod(fmt.Sprintf("p%02d", i), nodetest.Resources{}, "exit=1@30s")
			p.Spec.RestartPolicy, p.Spec.NodeName = corev1.RestartPolicyNever, fmt.Sprint("n", i%3)
			f.add(p)
			names = append(names, p.Name)
		}
		f.advance(10 * time.Second)
		f.requireRunning(names...)
		f.server.ForgetRequests()
		f.server.SetUnavailable(true)
		f.advance(time.Minute)
		require.Less(t, f.count("patch", "pods"), 30*12)
		require.Less(t, f.count("update", "leases"), 3*20)
		f.server.SetUnavailable(false)
		f.advance(20 * time.Second)
		for _, name := range names {
			require.Equal(t, corev1.PodFailed, f.pod(name).Status.Phase, name)
		}
		for i := range 3 {
			lease, _ := apiservertest.Get[*coordinationv1.Lease](f.server, corev1.NamespaceNodeLease, fmt.Sprint("n", i))
			require.Less(t, time.Since(lease.Spec.RenewTime.Time), 20*time.Second)
		}
	})
}

// Requests that hang do not delay those of other nodes for longer than their timeout, and a stop ends them.
func TestFleetStopsWhileRequestsHang(t *testing.T) {
	runFleet(t, 2, nil, func(f *fleet) {
		f.advance(time.Second)
		defer f.server.Hang("patch", "pods")()
		f.add(nodetest.NewPod("web", nodetest.Resources{}, ""))
		f.advance(30 * time.Second)
		require.Positive(t, f.count("update", "leases"))
		began := time.Now()
		f.stop()
		require.Less(t, time.Since(began), time.Second)
		f.stop = func() {}
	})
}

// A Node that another client deletes is created again after a while, with another lease, and its pods continue.
func TestFleetRegistersDeletedNodeAgain(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.add(nodetest.NewPod("web", nodetest.Resources{}, ""))
		f.advance(time.Second)
		uid := f.node("n0").UID
		require.NoError(t, f.server.Remove(f.node("n0")))
		f.advance(5 * time.Second)
		_, found := apiservertest.Get[*corev1.Node](f.server, "", "n0")
		require.False(t, found)
		f.advance(30 * time.Second)
		n := f.node("n0")
		require.NotEqual(t, uid, n.UID)
		lease, found := apiservertest.Get[*coordinationv1.Lease](f.server, corev1.NamespaceNodeLease, "n0")
		require.True(t, found)
		require.Equal(t, n.UID, lease.OwnerReferences[0].UID)
		f.requireRunning("web")
	})
}

// A second Fleet takes over the Node objects, leases and pods of the first. It respects labels and taints of other clients.
func TestFleetTakesOverNodes(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.add(nodetest.NewPod("web", nodetest.Resources{}, ""))
		f.advance(time.Second)
		f.stop()
		require.NoError(t, apiservertest.Change(f.server, "", "n0", func(n *corev1.Node) {
			n.Labels["disk"], n.Status.Conditions = "ssd", nil
		}))
		f.start(1, nil)
		f.advance(15 * time.Second)
		f.requireRunning("web")
		require.Equal(t, corev1.ConditionTrue, conditionStatus(f.node("n0"), corev1.NodeReady))
		require.Equal(t, "ssd", f.node("n0").Labels["disk"])
		selective := nodetest.NewPod("selective", nodetest.Resources{}, "")
		selective.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		f.add(selective)
		f.advance(time.Second)
		f.requireRunning("selective")
		lease, _ := apiservertest.Get[*coordinationv1.Lease](f.server, corev1.NamespaceNodeLease, "n0")
		require.Less(t, time.Since(lease.Spec.RenewTime.Time), 15*time.Second)
	})
}

// Another client that removes the status of a pod again and again causes few patches.
func TestFleetBacksOffFromAnotherWriter(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.add(nodetest.NewPod("web", nodetest.Resources{}, ""))
		f.advance(time.Second)
		f.server.ForgetRequests()
		for range 60 {
			require.NoError(t, apiservertest.Change(f.server, "default", "web", func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }))
			f.advance(time.Second)
		}
		require.LessOrEqual(t, f.count("patch", "pods"), 6)
	})
}

// NewFleet names the option that is missing or invalid.
func TestNewFleetReturnsErrorForInvalidOptions(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	t.Cleanup(server.Close)
	for text, o := range map[string]nodetest.FleetOptions{
		"Nodes, and either Kubeconfig or API": {API: server},
		"either Kubeconfig or API":            {Nodes: make([]nodetest.Options, 1)},
		"two nodes have the name \"node\"":    {API: server, Nodes: make([]nodetest.Options, 2)},
		"Parallel -1":                         {API: server, Nodes: make([]nodetest.Options, 1), Parallel: -1},
		"node a: ":                            {API: server, Nodes: []nodetest.Options{{Name: "a", API: server}}},
	} {
		_, err := nodetest.NewFleet(t.Context(), o)
		require.ErrorContains(t, err, text)
	}
}
