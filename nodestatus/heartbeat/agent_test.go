// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

// agent is a reporter whose sources the test sets.
type agent struct {
	*heartbeat.Reporter
	server *apiservertest.Server
	logs   logs

	mu      sync.Mutex // guards the fields below
	health  nodestatus.Health
	status  cri.Status
	err     error // error of the runtime
	hang    bool  // the calls of the runtime hang
	bootID  string
	events  []nodestatus.Event
	told    []string // names of the called hooks, in order
	applied [][]string
}

func ready() cri.Status {
	return cri.Status{Conditions: []cri.Condition{{Type: cri.ConditionRuntimeReady, Status: true}, {Type: cri.ConditionNetworkReady, Status: true}}}
}

// newAgent returns an agent whose runtime is ready.
func newAgent(t *testing.T, server *apiservertest.Server, change ...func(*heartbeat.ReporterOptions)) *agent {
	t.Helper()
	a := &agent{server: server, status: ready(), bootID: "boot-1"}
	o := heartbeat.ReporterOptions{
		Config:     nodestatus.Config{Name: "n", NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}},
		Conditions: nodestatus.ConditionsFunc(func() nodestatus.Health { return get(a, &a.health) }),
		Capacity: nodestatus.CapacityFunc(func(context.Context) (machine.Info, error) {
			return machine.Info{BootID: get(a, &a.bootID), CPUs: 4, Memory: 8 << 30, RootFS: 100 << 30}, nil
		}),
		Hosts: addresses{}, Runtime: a, Rand: half, Logger: a.logs.logger(),
		Event: func(e nodestatus.Event) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.events = append(a.events, e)
		},
		Hooks: heartbeat.ReporterHooks{
			Registered: func(*corev1.Node) { a.recordHook("registered") },
			Reported:   func(*corev1.Node) { a.recordHook("reported") },
			Deleted:    func() { a.recordHook("deleted") },
		},
	}
	for _, c := range change {
		c(&o)
	}
	r, err := heartbeat.NewReporter(server.Config(), o)
	require.NoError(t, err)
	a.Reporter = r
	return a
}

func get[T any](a *agent, v *T) T {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *v
}

func set[T any](a *agent, v *T, to T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*v = to
}

func (a *agent) recordHook(what string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told = append(a.told, what)
}

// reasons returns the reasons of the events since the previous call.
func (a *agent) reasons() (reasons []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		reasons = append(reasons, e.Reason)
	}
	a.events = nil
	return reasons
}

func (a *agent) Version(context.Context) (cri.Version, error) {
	return cri.Version{RuntimeName: "containerd", RuntimeVersion: "2.4.0"}, nil
}

func (a *agent) Status(ctx context.Context) (cri.Status, error) {
	if get(a, &a.hang) {
		<-ctx.Done()
		return cri.Status{}, ctx.Err()
	}
	return get(a, &a.status), get(a, &a.err)
}

// addresses is a host with one address.
type addresses struct{}

func (addresses) Host(context.Context, *nodestatus.Config) nodestatus.Host {
	return nodestatus.Host{Interfaces: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
}

// storedNode returns the Node of the API server.
func (a *agent) storedNode(t *testing.T) *corev1.Node {
	t.Helper()
	n, found := apiservertest.Get[*corev1.Node](a.server, "", "n")
	require.True(t, found)
	return n
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return n.Status.Conditions[i]
}

func isReady(n *corev1.Node) bool {
	return condition(n, corev1.NodeReady).Status == corev1.ConditionTrue
}

// runWithServer runs a test in virtual time with a server in memory.
func runWithServer(t *testing.T, test func(t *testing.T, server *apiservertest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := apiservertest.NewServer(apiservertest.Options{})
		defer server.Close()
		test(t, server)
	})
}
