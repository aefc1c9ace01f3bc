// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package runtimestate_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/runtimestate"
)

func status(conditions ...cri.Condition) cri.Status { return cri.Status{Conditions: conditions} }

func TestNetworkError(t *testing.T) {
	for name, c := range map[string]struct {
		status cri.Status
		want   string
	}{
		"ready":         {status(cri.Condition{Type: cri.ConditionNetworkReady, Status: true}), ""},
		"no condition":  {status(cri.Condition{Type: cri.ConditionRuntimeReady, Status: true}), "container runtime network not ready: the runtime has no condition NetworkReady"},
		"not ready":     {status(cri.Condition{Type: cri.ConditionNetworkReady, Reason: "R", Message: "M"}), "container runtime network not ready: NetworkReady=false reason:R message:M"},
		"only its type": {status(cri.Condition{Type: cri.ConditionNetworkReady}), "container runtime network not ready: NetworkReady=false reason: message:"},
	} {
		t.Run(name, func(t *testing.T) {
			err := runtimestate.NetworkError(c.status)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

// node is a runtime with a network status. It records the UIDs that were notified.
type node struct {
	rt       *critest.Runtime
	r        *runtimestate.Runtime
	mu       sync.Mutex
	ok       bool
	notified [][]string
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{}
	n.rt = critest.New(critest.Options{Status: func() cri.Status {
		n.mu.Lock()
		defer n.mu.Unlock()
		return status(cri.Condition{Type: cri.ConditionNetworkReady, Status: n.ok})
	}})
	n.r = runtimestate.New(n.rt, func(uids ...string) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.notified = append(n.notified, uids)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); n.r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return n
}

func (n *node) setReady(ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ok = ok
}

func (n *node) countStatusCalls() int { return len(n.rt.Calls("Status")) }

// The status is fetched only when a pod starts, and at most once in 5 s for all pods.
func TestStatusFetchedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.setReady(true)
		time.Sleep(time.Hour)
		assert.Zero(t, n.countStatusCalls())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() { assert.NoError(t, n.r.CheckNetwork(t.Context(), "a", true)) })
		}
		wg.Wait()
		assert.Equal(t, 1, n.countStatusCalls(), "concurrent checks fetch the status once")
		before := n.countStatusCalls()
		time.Sleep(4 * time.Second)
		require.NoError(t, n.r.CheckNetwork(t.Context(), "a", true))
		assert.Equal(t, before, n.countStatusCalls())
		time.Sleep(time.Second)
		require.NoError(t, n.r.CheckNetwork(t.Context(), "a", true))
		assert.Equal(t, before+1, n.countStatusCalls())
		synctest.Wait()
		assert.Empty(t, n.notified)
	})
}

// Waiting pods are notified when the network is ready. Until then the status is fetched once a second.
func TestWaitingPodsNotifiedWhenNetworkIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		for _, uid := range []string{"b", "a"} {
			require.Error(t, n.r.CheckNetwork(t.Context(), uid, true))
		}
		before := n.countStatusCalls()
		time.Sleep(10500 * time.Millisecond)
		assert.Equal(t, before+10, n.countStatusCalls())
		n.setReady(true)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, [][]string{{"a", "b"}}, n.notified)

		n.setReady(false)
		time.Sleep(10 * time.Second)
		require.NoError(t, n.r.CheckNetwork(t.Context(), "c", false), "a check that does not wait returns the last status")
		synctest.Wait()
		require.Error(t, n.r.CheckNetwork(t.Context(), "c", false))
		before = n.countStatusCalls()
		time.Sleep(time.Hour)
		assert.InDelta(t, before+20, n.countStatusCalls(), 1, "a pod without further checks is no longer waiting")
	})
}

// silent is a runtime that does not report a status.
type silent struct{ cri.Runtime }

func TestRuntimeWithoutStatusReporter(t *testing.T) {
	r := runtimestate.New(silent{critest.New(critest.Options{})}, nil)
	require.NoError(t, r.CheckNetwork(t.Context(), "a", true))
	name, err := r.Name(t.Context())
	require.NoError(t, err)
	assert.Empty(t, name)
	r.Run(t.Context())
}
