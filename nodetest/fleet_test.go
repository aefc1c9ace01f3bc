// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// fleet is a Fleet with an API server in memory, in a bubble of testing/synctest.
type fleet struct {
	t      *testing.T
	server *apiservertest.Server
	stop   func()

	packAfter time.Duration // of the Fleet; zero: at once
}

// noLatency is the latency of a runtime that returns at once.
func noLatency(string, string) time.Duration { return 0 }

// runFleet calls test in a bubble, with a Fleet of count nodes that runs. All its goroutines have ended when runFleet returns.
func runFleet(t *testing.T, count int, change func(*nodetest.FleetOptions), test func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, server: apiservertest.NewServer(apiservertest.Options{})}
		defer f.server.Close()
		f.start(count, change)
		test(f)
		f.stop()
	})
}

// start runs a Fleet until f.stop is called. The memory of an idle node is packed after f.packAfter.
func (f *fleet) start(count int, change func(*nodetest.FleetOptions)) *nodetest.Fleet {
	f.t.Helper()
	o := nodetest.FleetOptions{API: f.server}
	for i := range count {
		o.Nodes = append(o.Nodes, nodetest.Options{Name: fmt.Sprint("n", i), Machine: machine.Spec{CPUs: 4, Memory: 4 << 30}, Latency: noLatency})
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	all, err := nodetest.NewFleet(ctx, o)
	require.NoError(f.t, err)
	nodetest.SetPackAfter(all, f.packAfter)
	ended := make(chan error, 1)
	go func() { ended <- all.Run(ctx) }()
	f.stop = func() {
		cancel()
		require.NoError(f.t, <-ended)
	}
	return all
}

// node returns the Node object with this name, which must exist.
func (f *fleet) node(name string) *corev1.Node {
	f.t.Helper()
	n, found := apiservertest.Get[*corev1.Node](f.server, "", name)
	require.True(f.t, found, name)
	return n
}

// pod returns the pod with this name, which must exist.
func (f *fleet) pod(name string) *corev1.Pod {
	f.t.Helper()
	p, found := apiservertest.Get[*corev1.Pod](f.server, "default", name)
	require.True(f.t, found, name)
	return p
}

// add creates pods on the node n0, with the defaults of an API server.
func (f *fleet) add(pods ...*corev1.Pod) {
	f.t.Helper()
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			p.Spec.NodeName = "n0"
		}
		p.UID = ""
		podapi.Default(p)
		require.NoError(f.t, f.server.Put(p))
	}
}

// advance waits for the duration d, and until all goroutines wait.
func (f *fleet) advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// count returns the number of requests with this verb for this resource.
func (f *fleet) count(verb, resource string) int {
	return f.server.CountRequests(apiservertest.Match{Verb: verb, Resource: resource})
}

func conditionStatus(n *corev1.Node, kind corev1.NodeConditionType) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// Each node registers with one request that has its whole status. Afterwards it only renews its lease, and reports its status every five minutes.
func TestFleetRegistersNodesAndRenewsLeases(t *testing.T) {
	runFleet(t, 20, nil, func(f *fleet) {
		f.advance(11 * time.Second)
		for i := range 20 {
			n := f.node(fmt.Sprint("n", i))
			require.Equal(t, corev1.ConditionTrue, conditionStatus(n, corev1.NodeReady), n.Status.Conditions)
			require.Equal(t, "4", n.Status.Capacity.Cpu().String())
			require.NotEmpty(t, n.Status.Addresses)
			lease, found := apiservertest.Get[*coordinationv1.Lease](f.server, corev1.NamespaceNodeLease, n.Name)
			require.True(t, found)
			require.Equal(t, n.UID, lease.OwnerReferences[0].UID)
			require.EqualValues(t, 40, *lease.Spec.LeaseDurationSeconds)
		}
		require.Equal(t, 20, f.count("create", "nodes"))
		require.Equal(t, 20, f.count("create", "leases"))
		require.Equal(t, 1, f.server.OpenWatches("pods"))
		require.Equal(t, 1, f.server.OpenWatches("nodes"))

		f.server.ForgetRequests()
		f.advance(10 * time.Minute)
		require.Zero(t, f.count("get", "leases"))
		require.InDelta(t, 20*60, f.count("update", "leases"), 60)
		for _, renewal := range f.server.Requests(apiservertest.Match{Verb: "update", Resource: "leases"}) {
			require.Zero(t, renewal.At.UnixNano()%int64(250*time.Millisecond), "leases are renewed in ticks")
		}
		require.InDelta(t, 20*2, f.count("patch", "nodes"), 25)
		lease, _ := apiservertest.Get[*coordinationv1.Lease](f.server, corev1.NamespaceNodeLease, "n7")
		require.Less(t, time.Since(lease.Spec.RenewTime.Time), 11*time.Second)
	})
}

// A pod runs after one status patch. Its deletion ends with a patch and a request that removes it.
func TestFleetRunsPods(t *testing.T) {
	runFleet(t, 2, nil, func(f *fleet) {
		f.advance(time.Second)
		web, other := nodetest.NewPod("web", nodetest.Resources{CPU: "100m"}, ""), nodetest.NewPod("other", nodetest.Resources{}, "")
		other.Spec.NodeName = "elsewhere"
		f.add(web, other)
		f.advance(time.Second)
		st := f.pod("web").Status
		require.Equal(t, corev1.PodRunning, st.Phase)
		require.True(t, st.ContainerStatuses[0].Ready)
		require.NotEmpty(t, st.PodIP)
		require.Equal(t, f.node("n0").Status.Addresses[0].Address, st.HostIP)
		require.Equal(t, 1, f.count("patch", "pods"))
		require.Empty(t, f.pod("other").Status.Conditions)

		require.NoError(t, f.server.Delete(web, nil))
		f.advance(time.Second)
		_, found := apiservertest.Get[*corev1.Pod](f.server, "default", "web")
		require.False(t, found)
		require.Equal(t, 2, f.count("patch", "pods"))
		require.Equal(t, 1, f.count("delete", "pods"))
		require.Zero(t, f.count("create", "events"))
	})
}

// Features that a Loop does not have do not stop a pod: hooks, ephemeral containers, claims. An invalid pod fails with its reason, and a pod that
// does not fit too.
func TestFleetRunsUnusualPodsAndRejectsOthers(t *testing.T) {
	runFleet(t, 1, nil, func(f *fleet) {
		f.advance(time.Second)
		hooks := nodetest.NewPod("hooks", nodetest.Resources{}, "")
		exec := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}
		hooks.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: exec, PreStop: exec}
		hooks.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "any"}}}
		claims := nodetest.NewPod("claims", nodetest.Resources{}, "")
		claims.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("gpu")}}
		large, invalid := nodetest.NewPod("large", nodetest.Resources{CPU: "64"}, ""), nodetest.NewPod("invalid", nodetest.Resources{}, "")
		invalid.Spec.Containers = append(invalid.Spec.Containers, invalid.Spec.Containers[0])
		f.add(hooks, claims, large, invalid)
		f.advance(time.Second)
		require.Equal(t, corev1.PodRunning, f.pod("hooks").Status.Phase)
		require.Equal(t, corev1.PodRunning, f.pod("claims").Status.Phase)
		require.Equal(t, "OutOfcpu", f.pod("large").Status.Reason)
		require.Equal(t, corev1.PodFailed, f.pod("invalid").Status.Phase)
		require.Contains(t, f.pod("invalid").Status.Message, "spec.containers[1].name")
	})
}

// A container whose liveness probe fails restarts with a back-off, and its failures are Warning events.
func TestFleetRestartsContainersWithBackOff(t *testing.T) {
	refuse := func(_ context.Context, age time.Duration, _ []string) error {
		if age > 30*time.Second {
			return errors.New("refused")
		}
		return nil
	}
	behave := func(*corev1.Pod, string) (nodetest.Behavior, bool) { return nodetest.Behavior{Probe: refuse}, true }
	runFleet(t, 1, func(o *nodetest.FleetOptions) { o.Nodes[0].Behave = behave }, func(f *fleet) {
		p := nodetest.NewPod("web", nodetest.Resources{}, "")
		p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(80)}}, PeriodSeconds: 5, FailureThreshold: 2}
		p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		f.add(p)
		f.advance(4 * time.Minute)
		st := f.pod("web").Status
		require.Positive(t, st.ContainerStatuses[0].RestartCount)
		f.advance(20 * time.Minute)
		later := f.pod("web").Status
		require.Greater(t, later.ContainerStatuses[0].RestartCount, st.ContainerStatuses[0].RestartCount)
		require.Less(t, later.ContainerStatuses[0].RestartCount, int32(20))
		reasons := map[string]bool{}
		for _, e := range apiservertest.List[*corev1.Event](f.server) {
			require.Equal(t, corev1.EventTypeWarning, e.Type)
			reasons[e.Reason] = true
		}
		require.True(t, reasons["Unhealthy"], reasons)
	})
}

// A pod leaks memory until its node evicts it and reports the pressure.
func TestFleetEvictsUnderPressure(t *testing.T) {
	runFleet(t, 2, nil, func(f *fleet) {
		f.add(nodetest.NewPod("leak", nodetest.Resources{Memory: "100Mi"}, "memory=ramp(64Mi,8Gi,4m)"), nodetest.NewPod("calm", nodetest.Resources{}, ""))
		f.advance(4 * time.Minute)
		require.Equal(t, "Evicted", f.pod("leak").Status.Reason)
		require.Equal(t, corev1.PodRunning, f.pod("calm").Status.Phase)
		require.Equal(t, corev1.ConditionTrue, conditionStatus(f.node("n0"), corev1.NodeMemoryPressure))
		require.Equal(t, corev1.ConditionFalse, conditionStatus(f.node("n1"), corev1.NodeMemoryPressure))
		f.advance(7 * time.Minute)
		require.Equal(t, corev1.ConditionFalse, conditionStatus(f.node("n0"), corev1.NodeMemoryPressure))
	})
}
