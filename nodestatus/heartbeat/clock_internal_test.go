// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// wallClock is a clock that can be set without affecting monotonic time.
type wallClock struct{ offset atomic.Int64 }

func (w *wallClock) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())).Round(0) }

// steadyRuntime is always ready.
type steadyRuntime struct{}

func (steadyRuntime) Version(context.Context) (cri.Version, error) { return cri.Version{}, nil }

func (steadyRuntime) Status(context.Context) (cri.Status, error) {
	return cri.Status{Conditions: []cri.Condition{{Type: cri.ConditionRuntimeReady, Status: true}, {Type: cri.ConditionNetworkReady, Status: true}}}, nil
}

// The wall clock is set an hour forward, two back and one forward. The node stays ready, the report period stays unchanged,
// and time stamps follow the wall clock.
func TestNodeStaysReadyWhenWallClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		large := nodestatus.CapacityFunc(func(context.Context) (machine.Info, error) {
			return machine.Info{CPUs: 1, Memory: 1 << 30, RootFS: 1 << 30}, nil
		})
		middle := func() float64 { return 0.5 }
		r, err := NewReporter(server.Config(), ReporterOptions{Config: nodestatus.Config{Name: "n"}, Runtime: steadyRuntime{}, Capacity: large, Rand: middle})
		require.NoError(t, err)
		l, err := NewLease(server.Config(), LeaseOptions{Reporter: r, Rand: middle})
		require.NoError(t, err)
		var clock wallClock
		r.wallClock, l.wallClock = clock.now, clock.now
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, r.Run(ctx)) })
		wg.Go(func() { assert.NoError(t, l.Run(ctx)) })
		defer wg.Wait()
		defer cancel()
		time.Sleep(time.Minute)
		created, _ := apiservertest.Get[*corev1.Node](server, "", "n")
		for _, jump := range []time.Duration{time.Hour, -2 * time.Hour, time.Hour} {
			clock.offset.Add(int64(jump))
			server.ForgetRequests()
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			patches := server.CountRequests(apiservertest.Match{Verb: "patch"})
			assert.InDelta(t, 4, patches, 1, "reports in 20 minutes")
			assert.InDelta(t, 117, server.CountRequests(apiservertest.Match{Verb: "update"}), 2, "renewals in 20 minutes")
			assert.Zero(t, server.CountRequests(apiservertest.Match{Verb: "get"}))

			node, _ := apiservertest.Get[*corev1.Node](server, "", "n")
			assert.True(t, isReady(node))
			assert.Equal(t, created.Status.Conditions[0].LastTransitionTime, node.Status.Conditions[0].LastTransitionTime)
			lease, _ := apiservertest.Get[*coordinationv1.Lease](server, corev1.NamespaceNodeLease, "n")
			assert.InDelta(t, 0, clock.now().Sub(lease.Spec.RenewTime.Time), float64(11*time.Second))
		}
	})
}
