// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// staticPod returns a static pod with an init container, whose manifest was read now. With relistedScripts, its main container
// takes 4 s to terminate.
func staticPod() *corev1.Pod {
	pod := podtest.Pod("web")
	pod.Annotations = map[string]string{
		"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": string(pod.UID), "kubernetes.io/config.seen": time.Now().String(),
	}
	pod.Spec.InitContainers = []corev1.Container{podtest.Init("first")}
	return pod
}

func relistedScripts() critest.Options {
	return critest.Options{Script: critest.ByName(map[string]critest.Script{
		"first": critest.ExitAfter(2*time.Second, 0), "main": critest.ExitAfterStop(4*time.Second, 0),
	})}
}

// changes returns the successive distinct values of a function of the status of pod web during the given time.
func (n *node) changes(during time.Duration, value func(st corev1.PodStatus) string) (values []string) {
	for begun := time.Now(); time.Since(begun) < during; time.Sleep(50 * time.Millisecond) {
		synctest.Wait()
		if now := value(n.status("web")); len(values) == 0 || values[len(values)-1] != now {
			values = append(values, now)
		}
	}
	return values
}

// startSlowAgent starts an agent on a runtime that takes a second to run a sandbox, so that the status before is published.
func startSlowAgent(t *testing.T, o lifecycle.Options) (*critest.Runtime, *node) {
	rt := critest.New(relistedScripts())
	slow := &critest.Faults{Runtime: rt, Around: func(_ context.Context, op, _ string, call func() error) error {
		if op == "RunPodSandbox" {
			time.Sleep(time.Second)
		}
		return call()
	}}
	return rt, startAgent(t, rt, faulty{slow, rt, rt}, o)
}

// A static pod whose manifest is removed and rewritten while its containers terminate is restarted in place. Its phase is never
// terminal, its containers count a restart and have a last state, and its volumes are set up again.
func TestStaticPodListedAgainIsRestartedInPlace(t *testing.T) {
	for _, away := range []time.Duration{0, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			volumes := &lifecycletest.Resources{}
			_, n := startSlowAgent(t, lifecycle.Options{Volumes: volumes, Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
			n.set(staticPod())
			time.Sleep(10 * time.Second)
			n.requireStatus("web", "Running, first: exited 0, main: ready")
			n.requireEvents("Created first Started first Created main Started main")

			n.set()
			time.Sleep(away)
			n.set(staticPod())
			changes := n.changes(20*time.Second, func(st corev1.PodStatus) string {
				sandbox, _, _ := strings.Cut(podtest.ConditionOf(st, corev1.PodReadyToStartContainers), " ")
				return podtest.Describe(st) + ", sandbox " + sandbox
			})
			assert.Equal(t, []string{
				"Running, first: exited 0, main: ready, sandbox True",
				"Running, first: exited 0, main: exited 0, sandbox False",
				"Pending, first: running x1, main: exited 0, sandbox True",
				"Running, first: exited 0 x1, main: ready x1, sandbox True",
			}, slices.DeleteFunc(changes, func(line string) bool { // the exit may be observed before or after the stop of the sandbox
				return line == "Running, first: exited 0, main: exited 0, sandbox True"
			}))
			require.Empty(t, n.removedPods(), "pod is restarted without being removed")
			last := n.status("web").ContainerStatuses[0].LastTerminationState.Terminated
			require.NotNil(t, last)
			assert.Equal(t, "Completed", last.Reason)
			n.requireEvents("Killing main SandboxChanged Created first Started first Created main Started main")
			var ops []string
			for _, call := range volumes.Calls() {
				if call.Op == "Prepare" || call.Op == "Release" {
					ops = append(ops, call.Op)
				}
			}
			assert.Equal(t, "Prepare Release Prepare", strings.Join(slices.Compact(ops), " "))
			requireRemovedForGood(n)
		})
	}
}

// requireRemovedForGood removes the manifest of pod web, and requires that nothing of the pod remains.
func requireRemovedForGood(n *node) {
	n.t.Helper()
	n.set()
	time.Sleep(time.Minute)
	require.Equal(n.t, []string{"web"}, n.removedPods())
	sandboxes, containers := n.objects()
	require.Zero(n.t, sandboxes+containers)
}

// A static pod whose manifest is removed has no terminal phase if its restart policy would restart its containers, as in the
// kubelet.
func TestStaticPodRemovedKeepsPhaseRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := startSlowAgent(t, lifecycle.Options{})
		n.set(staticPod())
		time.Sleep(10 * time.Second)
		n.set()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"web"}, n.removedPods())
		n.requireStatus("web", "Running, first: exited 0, main: exited 0")
		require.NotContains(t, strings.Join(n.history, ", "), "Succeeded")
	})
}

// The manifest is removed, rewritten and removed again before the containers have terminated: the pod is torn down.
func TestStaticPodListedAgainAndRemovedIsTornDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, n := startSlowAgent(t, lifecycle.Options{})
		n.set(staticPod())
		time.Sleep(10 * time.Second)
		n.set()
		n.set(staticPod())
		time.Sleep(time.Second)
		n.set()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"web"}, n.removedPods())
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))
	})
}

// A pod whose restart policy does not restart its containers has a terminal phase, which is final, as in the kubelet.
func TestStaticPodListedAgainStaysTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		rt, n := startSlowAgent(t, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}})
		pod := staticPod()
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		n.set(pod)
		time.Sleep(10 * time.Second)
		n.set()
		n.set(pod)
		time.Sleep(20 * time.Second)
		n.requireStatus("web", "Succeeded, first: exited 0, main: exited 0")
		require.NoError(t, n.reconciler.RemoveTerminatedContainers(t.Context()))
		n.stop()
		n = startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}})
		n.set(pod)
		time.Sleep(20 * time.Second)
		n.requireStatus("web", "Succeeded, first: exited 0, main: exited 0")
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))
		requireRemovedForGood(n)
	})
}

// A pod that has changed when it is listed again starts from scratch.
func TestChangedStaticPodListedAgainStartsFromScratch(t *testing.T) {
	for name, change := range map[string]func(before, after *corev1.Pod){
		"another spec":  func(_, after *corev1.Pod) { after.Spec.Containers[0].Image = "busybox:2" },
		"another label": func(_, after *corev1.Pod) { after.Labels = map[string]string{"version": "2"} },
		"not static":    func(before, after *corev1.Pod) { before.Annotations, after.Annotations = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, n := startSlowAgent(t, lifecycle.Options{})
				before, after := staticPod(), staticPod()
				change(before, after)
				n.set(before)
				time.Sleep(10 * time.Second)
				n.set()
				n.set(after)
				time.Sleep(20 * time.Second)
				require.Equal(t, []string{"web"}, n.removedPods(), "the previous version was torn down")
				n.requireStatus("web", "Running, first: exited 0, main: ready")
			})
		})
	}
}

// A pod that is listed again starts once its volumes could be released, which fails for some time.
func TestStaticPodListedAgainWaitsForItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := time.Now().Add(time.Minute)
		volumes := &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
			if c.Op == "Release" && time.Now().Before(free) {
				return errors.New("busy")
			}
			return nil
		}}
		_, n := startSlowAgent(t, lifecycle.Options{Volumes: volumes})
		n.set(staticPod())
		time.Sleep(10 * time.Second)
		n.set()
		n.set(staticPod())
		time.Sleep(30 * time.Second)
		n.requireStatus("web", "Running, first: exited 0, main: exited 0")
		time.Sleep(time.Minute)
		n.requireStatus("web", "Running, first: exited 0 x1, main: ready x1")
	})
}

// A terminating pod is listed again, and the agent is killed before the sandbox is stopped: the restarted agent restarts the
// container in this sandbox.
func TestStaticPodListedAgainRestartsAfterAgentCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		rt, n := startSlowAgent(t, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}})
		n.set(staticPod())
		time.Sleep(10 * time.Second)
		n.set()
		n.set(staticPod())
		time.Sleep(2 * time.Second)
		n.stop()
		time.Sleep(10 * time.Second)
		n = startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: dir}})
		n.set(staticPod())
		time.Sleep(20 * time.Second)
		n.requireStatus("web", "Running, first: exited 0, main: ready x1")
		require.Empty(t, n.removedPods())
	})
}
