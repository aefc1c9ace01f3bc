// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// network is a runtime whose network can be not ready, and whose Status can hang or fail.
type network struct {
	down   atomic.Bool
	status atomic.Pointer[func(ctx context.Context) error] // nil: Status returns at once
}

func (n *network) runtime(o critest.Options) (*critest.Runtime, *critest.Interceptor) {
	o.Status = func() cri.Status {
		c := cri.Condition{Type: cri.ConditionNetworkReady, Status: !n.down.Load()}
		if !c.Status {
			c.Reason, c.Message = "NetworkPluginNotReady", "Network plugin returns error: cni plugin not initialized"
		}
		return cri.Status{Conditions: []cri.Condition{{Type: cri.ConditionRuntimeReady, Status: true}, c}}
	}
	rt := critest.New(o)
	return rt, &critest.Interceptor{
		Runtime: critest.SummaryRuntime{Runtime: rt},
		Around: func(ctx context.Context, op, _ string, call func(context.Context) error) error {
			if fault := n.status.Load(); op == "Status" && fault != nil {
				return (*fault)(ctx)
			}
			return call(ctx)
		},
	}
}

// hostPod returns a pod on the host network.
func hostPod(name string) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.Spec.HostNetwork = true
	return pod
}

const notReady = "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
	"message:Network plugin returns error: cni plugin not initialized"

// While the network is not ready only pods on the host network start. The other pods report the reason, and start once it is
// ready.
func TestPodsWaitUntilNetworkIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		net.down.Store(true)
		rt, via := net.runtime(critest.Options{})
		n := startAgent(t, rt, via, lifecycle.Options{})
		n.set(podtest.Pod("a"), hostPod("host"))
		time.Sleep(500 * time.Millisecond)
		n.requireStatus("host", "Running, main: ready")
		n.requireStatus("a", "Pending, main: ContainerCreating")
		require.Equal(t, notReady, n.status("a").ContainerStatuses[0].State.Waiting.Message)
		require.Contains(t, n.events, "NetworkNotReady!")
		require.Contains(t, n.podEvents[len(n.podEvents)-1].Message+n.errors(), notReady)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 1, ops(rt, "RunPodSandbox"), "only the pod on the host network gets a sandbox")

		net.down.Store(false)
		time.Sleep(1500 * time.Millisecond)
		n.requireStatus("a", "Running, main: ready")
		calls := ops(rt, "Status")
		time.Sleep(time.Hour)
		require.Equal(t, calls, ops(rt, "Status"), "Status is not called while no pod starts")
	})
}

// A network that becomes not ready stops no container. Restarts wait for the network, as in the kubelet.
func TestNetworkNotReadyStopsNoRunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		rt, via := net.runtime(critest.Options{})
		n := startAgent(t, rt, via, lifecycle.Options{})
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
		net.down.Store(true)
		time.Sleep(time.Minute)
		n.set(podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("late"))
		time.Sleep(time.Second)
		n.requireStatus("late", "Pending, main: ContainerCreating")
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(30 * time.Second)
		require.Equal(t, notReady, n.waitingMessage("a"))
		n.requireStatus("b", "Running, main: ready")
		n.set(podtest.Pod("b"), podtest.Pod("late"))
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods(), "pod is removed without a ready network")
		net.down.Store(false)
		time.Sleep(2 * time.Second)
		n.requireStatus("late", "Running, main: ready")
	})
}

// If Status hangs, pods start with a delay of two seconds at most.
func TestPodsStartWhileStatusHangs(t *testing.T) {
	forever := func(ctx context.Context) error { // ignores its context
		<-ctx.Done()
		time.Sleep(24 * time.Hour)
		return ctx.Err()
	}
	for name, fault := range map[string]func(ctx context.Context) error{
		"call returns when its context ends": critest.Hang,
		"call ignores its context":           forever,
		"fails":                              func(context.Context) error { return errors.New("not implemented") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var net network
				net.down.Store(true)
				net.status.Store(&fault)
				rt, via := net.runtime(critest.Options{})
				n := startAgent(t, rt, via, lifecycle.Options{})
				n.set(podtest.Pod("a"), podtest.Pod("b"))
				time.Sleep(2500 * time.Millisecond)
				n.requireStatus("a", "Running, main: ready")
				n.requireStatus("b", "Running, main: ready")
				n.set(podtest.Pod("a"), podtest.Pod("c"))
				time.Sleep(time.Second)
				n.requireStatus("c", "Running, main: ready")
				require.Equal(t, []string{"b"}, n.removedPods())
				require.Empty(t, n.errors())
				n.stop()
				time.Sleep(48 * time.Hour) // the hung call returns
			})
		})
	}
}

// If Status hangs later, its last report that the network is not ready expires.
func TestNetworkNotReadyExpiresWhileStatusHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var net network
		net.down.Store(true)
		rt, via := net.runtime(critest.Options{})
		n := startAgent(t, rt, via, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(10 * time.Second)
		n.requireStatus("a", "Pending, main: ContainerCreating")
		net.status.Store(new(critest.Hang))
		time.Sleep(50 * time.Second)
		n.requireStatus("a", "Pending, main: ContainerCreating")
		time.Sleep(30 * time.Second)
		n.requireStatus("a", "Running, main: ready")
	})
}
