// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

func TestRunCreatesNode(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		require.Equal(t, "n", a.Node().Name, "before Run")
		defer run(t, a.Run)()
		synctest.Wait()
		n := a.storedNode(t)
		assert.True(t, isReady(n))
		assert.Equal(t, "4", n.Status.Capacity.Cpu().String())
		assert.Equal(t, "containerd://2.4.0", n.Status.NodeInfo.ContainerRuntimeVersion)
		assert.Equal(t, []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "Hostname", Address: "n"}}, n.Status.Addresses)
		assert.Equal(t, n.UID, a.Node().UID)
		assert.Equal(t, []string{"reported", "registered"}, get(a, &a.told))
		assert.Contains(t, a.reasons(), "Starting")
		assert.Equal(t, 1, server.CountRequests(apiservertest.Match{Verb: "create"}))
		assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "patch"}), "the Node was created with its whole status")
		assert.ErrorContains(t, a.Run(t.Context()), "second call of Run")
	})
}

// A waiting caller continues once the API server has the Node. A later call returns at once.
func TestWaitRegisteredReturnsOnceNodeExists(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := a.WaitRegistered(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "wait for node n")
		found := make(chan error, 1)
		go func() { found <- a.WaitRegistered(t.Context()) }()
		synctest.Wait()
		require.Empty(t, found)
		defer run(t, a.Run)()
		require.NoError(t, <-found)
		require.Equal(t, a.storedNode(t).UID, a.Node().UID)
		require.NoError(t, a.WaitRegistered(t.Context()))
	})
}

// A node without changes sends a report every five minutes and keeps a watch. It sends no other requests.
func TestIdleNodeSendsOneReportPerFiveMinutes(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		server.ForgetRequests()
		time.Sleep(time.Hour)
		patches := server.Requests(apiservertest.Match{Verb: "patch", Resource: "nodes", Subresource: "status"})
		assert.InDelta(t, 12, len(patches), 1)
		assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "get"}))
		t.Logf("%d lists, %d watches", server.CountRequests(apiservertest.Match{Verb: "list"}), server.CountRequests(apiservertest.Match{Verb: "watch"}))
		rest := server.CountRequests(apiservertest.Match{}) - len(patches)
		assert.LessOrEqual(t, rest, 9, "watches of 5 to 10 minutes for an hour, as in the kubelet")
		for _, p := range patches {
			assert.Less(t, len(p.Body), 1200, "%s", p.Body)
		}
	})
}

func TestRunReconcilesExistingNode(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		old := node("n")
		old.Labels = map[string]string{"kubernetes.io/os": "windows", "example.com/mine": "1"}
		old.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		old.Status.Conditions = []corev1.NodeCondition{{Type: "FrequentKubeletRestart", Status: corev1.ConditionFalse}}
		require.NoError(t, server.Put(old))
		a := newAgent(t, server, func(o *heartbeat.ReporterOptions) {
			o.Config.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}}
		})
		defer run(t, a.Run)()
		synctest.Wait()
		n := a.storedNode(t)
		assert.True(t, isReady(n))
		assert.Equal(t, "linux", n.Labels["kubernetes.io/os"])
		assert.Equal(t, "1", n.Labels["example.com/mine"])
		assert.Equal(t, old.Spec.Taints, n.Spec.Taints)
		assert.Equal(t, corev1.ConditionFalse, condition(n, "FrequentKubeletRestart").Status)
		assert.Equal(t, old.Spec.Taints, a.Node().Spec.Taints)
	})
}

// If nodes may not create themselves, an existing Node is used. Registration is retried until it exists.
func TestRunUsesExistingNodeWhenCreateIsForbidden(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		server.Fail("create", "nodes", 403)
		a := newAgent(t, server)
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		require.Empty(t, get(a, &a.told))
		creates := server.Requests(apiservertest.Match{Verb: "create", Resource: "nodes"})
		var waits []time.Duration
		for i := range 9 {
			waits = append(waits, creates[i+1].At.Sub(creates[i].At))
		}
		const ms = time.Millisecond
		assert.Equal(t, []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 7000 * ms, 7000 * ms}, waits)
		assert.Contains(t, a.logs.with("register node")[0], "create nodes")
		assert.Error(t, a.Report(t.Context()))

		require.NoError(t, server.Put(node("n")))
		time.Sleep(7 * time.Second)
		synctest.Wait()
		assert.True(t, isReady(a.storedNode(t)))
		assert.Equal(t, []string{"registered", "reported"}, get(a, &a.told))
	})
}

// The runtime starts after the agent. The node is reported as ready within a second, and no request is sent before.
func TestNodeIsReadyWithinSecondOfRuntime(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		a.err = errors.New("connection refused")
		defer run(t, a.Run)()
		time.Sleep(45 * time.Second)
		require.False(t, isReady(a.storedNode(t)))
		require.Contains(t, condition(a.storedNode(t), corev1.NodeReady).Message, "container runtime status check may not have completed yet")
		assert.LessOrEqual(t, len(a.logs.with("connection refused")), 1, "a repeated error is logged once")
		server.ForgetRequests()
		set[error](a, &a.err, nil)
		time.Sleep(time.Second)
		assert.True(t, isReady(a.storedNode(t)))
		assert.Equal(t, 1, server.CountRequests(apiservertest.Match{}))
		assert.Contains(t, a.reasons(), "NodeReady")
	})
}

// A changed condition is reported within a second. A flapping condition causes at most one request a second.
func TestChangedConditionIsReportedWithinSecond(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		a.reasons()
		server.ForgetRequests()
		set(a, &a.health, nodestatus.Health{MemoryPressure: true})
		a.Changed()
		synctest.Wait()
		assert.Equal(t, corev1.ConditionTrue, condition(a.storedNode(t), corev1.NodeMemoryPressure).Status)
		assert.Equal(t, corev1.ConditionTrue, condition(a.Node(), corev1.NodeMemoryPressure).Status)
		assert.Equal(t, []string{"NodeHasInsufficientMemory"}, a.reasons())

		set(a, &a.health, nodestatus.Health{})
		a.Changed()
		synctest.Wait()
		require.Equal(t, 1, server.CountRequests(apiservertest.Match{}), "a second change within a second is not reported at once")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, corev1.ConditionFalse, condition(a.storedNode(t), corev1.NodeMemoryPressure).Status)

		server.ForgetRequests()
		for i := range 1000 {
			set(a, &a.health, nodestatus.Health{DiskPressure: i%2 == 0})
			a.Changed()
			time.Sleep(30 * time.Millisecond)
		}
		assert.LessOrEqual(t, server.CountRequests(apiservertest.Match{}), 31)
		time.Sleep(time.Second)
		assert.Equal(t, corev1.ConditionFalse, condition(a.storedNode(t), corev1.NodeDiskPressure).Status)
	})
}

// A hanging runtime makes the node not ready after 30 s, as a runtime that is down does. It delays no other update.
func TestHangingRuntimeMakesNodeNotReadyAfter30Seconds(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		a.reasons()
		set(a, &a.hang, true)
		time.Sleep(25 * time.Second)
		require.True(t, isReady(a.storedNode(t)))
		set(a, &a.health, nodestatus.Health{PIDPressure: true})
		a.Changed()
		synctest.Wait()
		assert.Equal(t, corev1.ConditionTrue, condition(a.storedNode(t), corev1.NodePIDPressure).Status)
		time.Sleep(20 * time.Second)
		assert.Equal(t, "container runtime is down", condition(a.storedNode(t), corev1.NodeReady).Message)
		assert.Equal(t, []string{"NodeHasInsufficientPID", "NodeNotReady"}, a.reasons())
		set(a, &a.hang, false)
		time.Sleep(12 * time.Second)
		assert.True(t, isReady(a.storedNode(t)))
		assert.Equal(t, []string{"NodeReady"}, a.reasons())
	})
}

// Report returns after the API server has accepted the status.
func TestReportReturnsAfterAcceptedStatus(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		stop := run(t, a.Run)
		time.Sleep(time.Minute)
		require.NoError(t, a.Report(t.Context()))
		set(a, &a.health, nodestatus.Health{ShuttingDown: true})
		require.NoError(t, a.Report(t.Context()))
		assert.Equal(t, "node is shutting down", condition(a.storedNode(t), corev1.NodeReady).Message)

		remove := server.Fail("patch", "nodes", 500)
		set(a, &a.health, nodestatus.Health{})
		assert.ErrorContains(t, a.Report(t.Context()), "patch nodes/status n")
		remove()
		server.Hang("patch", "nodes")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		assert.ErrorIs(t, a.Report(ctx), context.DeadlineExceeded)
		stop()
		assert.ErrorContains(t, a.Report(t.Context()), "Run has returned")
	})
}

// While the API server fails, Node and its listeners have the computed status, and the number of requests is bounded. After the fault one
// status is sent.
func TestReporterSendsOneStatusAfterFaultsOfAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(*apiservertest.Server) (remove func())
		most  int // requests per minute
	}{
		"hang":            {func(s *apiservertest.Server) func() { return s.Hang("", "") }, 10},
		"hung writes":     {func(s *apiservertest.Server) func() { return s.Hang("patch", "") }, 12},
		"cut":             {func(s *apiservertest.Server) func() { return s.Disconnect("", "") }, 60},
		"internal errors": {func(s *apiservertest.Server) func() { return s.Fail("", "", 500) }, 60},
		"conflicts":       {func(s *apiservertest.Server) func() { return s.Fail("patch", "", 409) }, 70},
		"away": {func(s *apiservertest.Server) func() {
			s.SetUnavailable(true)
			return func() { s.SetUnavailable(false) }
		}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
				a := newAgent(t, server)
				var told atomic.Int32
				a.Notify(func() { told.Add(1) })
				defer run(t, a.Run)()
				time.Sleep(time.Minute)
				remove := test.fault(server)
				server.DisconnectAll()
				server.ForgetRequests()
				told.Store(0)
				for i := range 20 {
					set(a, &a.health, nodestatus.Health{MemoryPressure: i%2 == 0})
					a.Changed()
					time.Sleep(6 * time.Second)
					want := corev1.ConditionFalse
					if i%2 == 0 {
						want = corev1.ConditionTrue
					}
					require.Equal(t, want, condition(a.Node(), corev1.NodeMemoryPressure).Status)
				}
				assert.GreaterOrEqual(t, told.Load(), int32(20))
				assert.LessOrEqual(t, server.CountRequests(apiservertest.Match{}), 2*test.most)
				set(a, &a.health, nodestatus.Health{DiskPressure: true})
				remove()
				server.DisconnectAll()
				time.Sleep(12 * time.Second)
				n := a.storedNode(t)
				assert.Equal(t, corev1.ConditionTrue, condition(n, corev1.NodeDiskPressure).Status)
				assert.Equal(t, corev1.ConditionFalse, condition(n, corev1.NodeMemoryPressure).Status)
				assert.True(t, isReady(n), "the node stays ready during the fault")
			})
		})
	}
}
