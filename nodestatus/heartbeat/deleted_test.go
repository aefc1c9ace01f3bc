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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// A deleted Node is not created again. Once another client has created it, its status is reported again.
func TestDeletedNodeIsNotRecreatedWithoutReregister(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		l, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{Reporter: a.Reporter, Logger: a.logs.logger()})
		require.NoError(t, err)
		defer run(t, a.Run, l.Run)()
		time.Sleep(time.Minute)
		_, leased := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
		require.True(t, leased)
		require.NoError(t, server.Remove(node("n")))
		require.NoError(t, server.Remove(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"}}))
		synctest.Wait()
		assert.Equal(t, []string{"reported", "registered", "deleted"}, get(a, &a.told))
		server.ForgetRequests()
		time.Sleep(10 * time.Minute)
		assert.Len(t, a.logs.with("node object was deleted"), 1)
		assert.Empty(t, a.logs.with("WARN"))
		for _, verb := range []string{"create", "patch", "update", "get"} {
			assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: verb}), verb)
		}
		assert.Equal(t, "n", a.Node().Name)
		assert.Error(t, a.Report(t.Context()))

		require.NoError(t, server.Put(node("n")))
		synctest.Wait()
		assert.True(t, isReady(a.storedNode(t)))
		lease, leased := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
		require.True(t, leased)
		assert.Equal(t, a.storedNode(t).UID, lease.OwnerReferences[0].UID)
		assert.Equal(t, []string{"reported", "registered", "deleted", "registered", "reported"}, get(a, &a.told))
	})
}

// With NoRegister, another client creates the Node. The Reporter then reports its status, and leaves its labels as they are.
func TestNodeIsNotCreatedWithNoRegister(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server, func(o *heartbeat.ReporterOptions) { o.NoRegister = true })
		l, err := heartbeat.NewLease(server.Config(), heartbeat.LeaseOptions{Reporter: a.Reporter, Logger: a.logs.logger()})
		require.NoError(t, err)
		defer run(t, a.Run, l.Run)()
		time.Sleep(time.Hour)
		for _, verb := range []string{"create", "patch", "update"} {
			assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: verb}), verb)
		}
		assert.Equal(t, "n", a.Node().Name)
		assert.Error(t, a.Report(t.Context()))
		assert.Empty(t, get(a, &a.told))

		for range 2 {
			require.NoError(t, server.Put(node("n")))
			require.NoError(t, a.WaitRegistered(t.Context()))
			time.Sleep(time.Minute)
			assert.True(t, isReady(a.storedNode(t)))
			assert.NotContains(t, a.storedNode(t).Labels, corev1.LabelHostname, "a label that only the registration sets")
			_, leased := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
			require.True(t, leased)
			require.NoError(t, server.Remove(node("n")))
			time.Sleep(time.Hour)
		}
		assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "create", Resource: "nodes"}))
	})
}

func TestDeletedNodeIsRecreatedWithReregister(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server, func(o *heartbeat.ReporterOptions) { o.Reregister = true })
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		var waits []time.Duration
		for range 7 {
			was := a.storedNode(t).UID
			require.NoError(t, server.Remove(node("n")))
			begin := time.Now()
			synctest.Wait()
			for {
				if n, found := apiservertest.Get[*corev1.Node](server, "", "n"); found {
					require.NotEqual(t, was, n.UID)
					require.True(t, isReady(n))
					break
				}
				time.Sleep(time.Second)
			}
			waits = append(waits, time.Since(begin).Round(time.Second))
			time.Sleep(30 * time.Second)
		}
		const s = time.Second
		for i, want := range []time.Duration{12500 * time.Millisecond, 25 * s, 50 * s, 100 * s, 200 * s, 375 * s, 375 * s} {
			assert.InDelta(t, want, waits[i], float64(1500*time.Millisecond), "deletion %d", i+1)
		}
		time.Sleep(11 * time.Minute)
		require.NoError(t, server.Remove(node("n")))
		time.Sleep(13 * time.Second)
		assert.True(t, isReady(a.storedNode(t)), "the check of a new deletion starts with the shortest pause")
	})
}

// Another machine reports a status for the Node. Its boot ID shows the conflict, and the two agents do not overwrite each
// other's status in a loop.
func TestSecondMachineIsDetectedByBootID(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a, other := newAgent(t, server), newAgent(t, server)
		other.bootID = "boot-2"
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		a.reasons()
		defer run(t, other.Run)()
		server.ForgetRequests()
		time.Sleep(5 * time.Minute)
		events := 0
		for _, reason := range a.reasons() {
			if reason == heartbeat.ReasonNameConflict {
				events++
			}
		}
		assert.InDelta(t, 5, events, 1)
		lines := a.logs.with("another agent has the name of this node")
		assert.Len(t, lines, events)
		assert.Contains(t, lines[0], "boot-2")
		assert.LessOrEqual(t, server.CountRequests(apiservertest.Match{Verb: "patch"}), 65, "one request in ten seconds from each agent")
	})
}

// Labels, taints and pod CIDRs that other clients write are in the result of Node, and the listeners of Notify are called.
func TestNodeFollowsChangesOfOtherClients(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		fail := true
		var a *agent
		a = newAgent(t, server, func(o *heartbeat.ReporterOptions) {
			o.PodCIDRs = func(_ context.Context, cidrs []string) error {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.applied = append(a.applied, cidrs)
				if fail {
					fail = false
					return errors.New("no network")
				}
				return nil
			}
		})
		var told atomic.Int32
		a.Notify(func() { told.Add(1) })
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		a.reasons()
		server.ForgetRequests()
		told.Store(0)
		require.NoError(t, apiservertest.Change(server, "", "n", func(n *corev1.Node) {
			n.Labels["zone"] = "a"
			n.Spec.PodCIDRs = []string{"10.1.0.0/24"}
			n.Spec.Unschedulable = true
		}))
		synctest.Wait()
		assert.Equal(t, "a", a.Node().Labels["zone"])
		assert.True(t, a.Node().Spec.Unschedulable)
		assert.EqualValues(t, 1, told.Load())
		time.Sleep(30 * time.Second)
		assert.Equal(t, [][]string{{"10.1.0.0/24"}, {"10.1.0.0/24"}}, get(a, &a.applied), "a failed PodCIDRs call is retried once")
		assert.LessOrEqual(t, told.Load(), int32(1))
		assert.Equal(t, []string{"NodeNotSchedulable"}, a.reasons())
		assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "patch"}), "changes of other clients cause no report")
	})
}

func TestNewReporterReturnsErrorForInvalidOptions(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	_, err := heartbeat.NewReporter(server.Config(), heartbeat.ReporterOptions{})
	assert.ErrorContains(t, err, "ReporterOptions.Config.Name: required")
	_, err = heartbeat.NewReporter(nil, heartbeat.ReporterOptions{Config: nodestatus.Config{Name: "n"}})
	assert.ErrorContains(t, err, "config is nil")
	_, err = heartbeat.NewReporter(server.Config(), heartbeat.ReporterOptions{Config: nodestatus.Config{Name: "n"}, UpdateFrequency: -1})
	assert.ErrorContains(t, err, "UpdateFrequency -1ns")
}

// A deletion that the watch has missed is detected by the next report. The checks for a recreated Node become less frequent.
func TestDeletionMissedByWatchIsDetectedByReport(t *testing.T) {
	runWithServer(t, func(t *testing.T, server *apiservertest.Server) {
		a := newAgent(t, server)
		defer run(t, a.Run)()
		time.Sleep(time.Minute)
		require.NoError(t, server.DeleteSilently(node("n")))
		time.Sleep(8 * time.Minute)
		require.Equal(t, []string{"reported", "registered", "deleted"}, get(a, &a.told)[:3])
		server.ForgetRequests()
		time.Sleep(time.Hour)
		assert.LessOrEqual(t, server.CountRequests(apiservertest.Match{Verb: "get"}), 17)
		assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "patch"}))
		assert.Len(t, a.logs.with("node object was deleted"), 1)
	})
}
