// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"strings"
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
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Tests of the events of a pod.

// requireEvents requires these events since the last call, one per line.
func (n *node) requireEvents(want string) {
	n.t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Equal(n.t, strings.Fields(want), strings.Fields(strings.Join(n.events, " ")), n.errs)
	n.events = nil
}

func TestEventsOfContainerStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.ExitAfter(time.Second, 1)})})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		pod := podtest.Pod("a")
		pod.Spec.InitContainers = []corev1.Container{podtest.Sidecar("proxy")}
		n.set(pod)
		time.Sleep(500 * time.Millisecond)
		n.requireEvents("Created proxy Started proxy Created main Started main")
		time.Sleep(3 * time.Second)
		n.requireEvents("Created main Started main BackOff! main")
		time.Sleep(5 * time.Second)
		n.requireEvents("")
		time.Sleep(5 * time.Second)
		n.requireEvents("Created main Started main BackOff! main")

		require.NoError(t, rt.Kill("uid-a-0", 0))
		time.Sleep(500 * time.Millisecond)
		n.requireEvents("Killing proxy SandboxChanged Created proxy Started proxy BackOff! main")
		n.set()
		time.Sleep(time.Minute)
		n.requireEvents("Killing proxy")
	})
}

func TestEventsOfFailedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Value
		broken.Store("RunPodSandbox")
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
				return cri.ExecResult{ExitCode: 1}, nil
			}}
		}})
		via := struct {
			faulty
			cri.Execer
		}{faulty{&critest.Faults{Runtime: rt, Around: func(_ context.Context, op, _ string, call func() error) error {
			if op == broken.Load() {
				time.Sleep(time.Millisecond) // so that the event of the previous action comes first
				return errors.New("out of order")
			}
			return call()
		}}, rt, rt}, rt}

		n := startAgent(t, rt, via, lifecycle.Options{Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: podtest.Exec("bye")}
		n.set(pod)
		time.Sleep(100 * time.Millisecond)
		n.requireEvents("FailedCreatePodSandBox!")

		broken.Store("CreateContainer")
		time.Sleep(time.Second)
		n.requireEvents("Failed! main")
		broken.Store("StartContainer")
		time.Sleep(5 * time.Second)
		n.requireEvents("Created main Failed! main")

		broken.Store("StopContainer")
		time.Sleep(10 * time.Second)
		n.requireEvents("Started main")
		n.set()
		time.Sleep(100 * time.Millisecond)
		n.requireEvents("Killing main FailedPreStopHook! main FailedKillPod!")
		broken.Store("")
		time.Sleep(time.Minute)
		n.requireEvents("Killing main FailedPreStopHook! main")
	})
}

// A pod whose FQDN is too long stays Pending. Its events have the kubelet's reason and message, its status does not. When
// the pod is deleted it fails, and its conditions remain those of a pod that waits for its containers.
func TestPodWithTooLongFQDNStaysPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{Spec: podspec.Options{ClusterDomain: "cluster.local"}})
		pod := podtest.Pod("a")
		name := strings.Repeat("h", 55)
		pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = name, "t", new(true)
		n.set(pod)
		time.Sleep(10 * time.Minute)
		require.Zero(t, ops(rt, "RunPodSandbox"))
		n.requireStatus("a", "Pending, main: ContainerCreating")
		require.Empty(t, n.status("a").ContainerStatuses[0].State.Waiting.Message)
		require.Equal(t, "False ContainersNotReady", podtest.ConditionOf(n.status("a"), corev1.PodReady))
		n.set()
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, main: exited 137")
		require.Equal(t, "False ContainersNotReady", podtest.ConditionOf(n.status("a"), corev1.PodReady))
		require.Equal(t, "containers with unready status: [main]", podstatus.FindCondition(n.status("a").Conditions, corev1.PodReady).Message)
		events := n.takeEvents()
		require.Greater(t, len(events), 2, "sandbox creation is retried")
		require.Less(t, len(events), 60, "sandbox creation is retried with a back-off")
		for _, e := range events {
			require.Equal(t, "Warning FailedCreatePodSandBox Failed to create pod sandbox: failed to construct FQDN from pod hostname and "+
				"cluster domain, FQDN "+name+".t.default.svc.cluster.local is too long (64 characters is the max, 83 characters requested)",
				e.Type+" "+e.Reason+" "+e.Message)
		}
	})
}

func TestEventsOfFailedHookAndDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := true
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
				if fail {
					fail = false
					return cri.ExecResult{ExitCode: 1}, nil
				}
				return cri.ExecResult{}, nil
			}}
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.ActiveDeadlineSeconds = new(int64(60))
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		n.set(pod)
		time.Sleep(30 * time.Second)
		n.requireEvents("Created main Started main FailedPostStartHook! main Killing main Created main Started main")
		time.Sleep(time.Minute)
		n.requireEvents("DeadlineExceeded Killing main")
	})
}

func TestEventsOfResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		via := &failingUpdates{Runtime: rt}
		var full atomic.Bool
		n := startAgent(t, rt, via, lifecycle.Options{AdmitResize: func(*corev1.Pod) error {
			if full.Load() {
				return errors.New("the node is full")
			}
			return nil
		}})

		n.set(sizedPod(t, 1, "cpu=250m/500m"))
		time.Sleep(time.Second)
		n.requireEvents("Created main Started main")
		n.set(sizedPod(t, 2, "cpu=500m/1"))
		time.Sleep(time.Second)
		n.requireEvents("ResizeStarted ResizeCompleted")

		via.failing.Store(true)
		n.set(sizedPod(t, 3, "cpu=500m/2"))
		time.Sleep(30 * time.Second)
		n.requireEvents("ResizeStarted ResizeError!")
		via.failing.Store(false)
		time.Sleep(time.Minute)
		n.requireEvents("ResizeCompleted")

		full.Store(true)
		n.set(sizedPod(t, 4, "cpu=500m/4"))
		time.Sleep(10 * time.Minute)
		n.requireEvents("ResizeDeferred!")
		n.set(sizedPod(t, 5, ""))
		time.Sleep(10 * time.Minute)
		n.requireEvents("ResizeInfeasible!")
	})
}
