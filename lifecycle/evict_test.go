// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Tests of evictions: a component other than the pod's source terminates the pod, and the status has the reason.

// lowOnMemory returns an eviction for memory pressure.
func lowOnMemory(grace time.Duration) podstatus.Eviction {
	return podstatus.Eviction{
		Reason: "Evicted", Message: "The node was low on resource: memory. ", Grace: grace,
		Conditions: []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet,
			Message: "The node was low on resource: memory. ",
		}},
	}
}

// disruptionTarget returns the condition DisruptionTarget of a pod in short form, or "absent".
func (n *node) disruptionTarget(name string) string {
	return podtest.ConditionOf(n.status(name), corev1.DisruptionTarget)
}

func TestEvictedPodFailsOnceContainersHaveExited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(3*time.Second, 0) }})
		n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}})
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() { done <- n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(4*time.Second)) }()
		time.Sleep(2 * time.Second)
		n.requireStatus("a", "Running, main: ready")
		require.Equal(t, "absent", n.disruptionTarget("a"), "the condition is not reported before the pod has terminated")
		require.Empty(t, done)
		time.Sleep(2 * time.Second)
		require.NoError(t, <-done)
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
		require.Equal(t, "The node was low on resource: memory. ", n.status("a").Message)
		require.Equal(t, "True TerminationByKubelet", n.disruptionTarget("a"))
		stopped, by := calls(rt, "StopContainer")
		require.Equal(t, []string{"main"}, stopped)
		require.Equal(t, 4*time.Second, by["main"].Grace)

		time.Sleep(time.Hour)
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
		n.requireStatus("b", "Running, main: ready")
		require.Equal(t, 2, ops(rt, "StartContainer"), "evicted container is not restarted")
		require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", podstatus.Eviction{Reason: "Preempting"}), "a second eviction of a terminated pod succeeds")
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
	})
}

// An evicted pod fails regardless of its exit codes and of a later deletion.
func TestEvictionContinuesAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(3*time.Second, 0) }})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		go func() { _ = n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(0)) }()
		time.Sleep(time.Second)
		n.requireStatus("a", "Running, main: ready")
		n.stop() // during the eviction

		n = startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
		require.Equal(t, "True TerminationByKubelet", n.disruptionTarget("a"))
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, Evicted, main: exited 0")
		require.Equal(t, "True TerminationByKubelet", n.disruptionTarget("a"))
		require.Equal(t, 1, ops(rt, "StartContainer"))
	})
}

// An eviction cancels an image pull, a start that hangs, and the wait for another pod.
func TestEvictionCancelsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		f := &critest.Faults{Runtime: rt, CreateContainerFunc: func(
			ctx context.Context, next cri.Runtime, id string, c *cri.ContainerConfig, s *cri.SandboxConfig,
		) (string, error) {
			return "", critest.Hang(ctx)
		}}
		n := startAgent(t, rt, f, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(time.Second)))
		require.Less(t, time.Since(began), 5*time.Second)
		n.requireStatus("a", "Failed, Evicted, main: exited 137")
	})
}

// Of two evictions the first sets the reason, and the shorter grace period applies. A deletion does not extend the grace
// period.
func TestSecondEvictionOnlyShortensGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(60))
		n.set(pod)
		time.Sleep(time.Second)
		began := time.Now()
		done := make(chan error, 2)
		go func() { done <- n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(0)) }()
		time.Sleep(10 * time.Second)
		go func() {
			done <- n.reconciler.Evict(t.Context(), "uid-a", podstatus.Eviction{Reason: "Preempting", Grace: 3 * time.Second})
		}()
		require.NoError(t, errors.Join(<-done, <-done))
		require.InDelta(t, 13, time.Since(began).Seconds(), 1)
		n.requireStatus("a", "Failed, Evicted, main: exited 137")
	})
}

// Evict returns only after the volumes are released, or with an error that names them when ctx ends. The second eviction
// comes when the temporarily evicted pod is about to start again.
func TestEvictReturnsAfterVolumesAreReleased(t *testing.T) {
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rt := critest.New(critest.Options{})
			var busy atomic.Bool
			volumes := &lifecycletest.Resources{Fault: func(_ context.Context, c lifecycletest.Call) error {
				if c.Op == "Release" && busy.Load() {
					return errors.New("the volume is busy")
				}
				return nil
			}}
			n := startAgent(t, rt, rt, lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Volumes: volumes})
			n.set(volumePod("a"))
			time.Sleep(time.Second)
			busy.Store(true)
			e := lowOnMemory(time.Second)
			e.Temporary = hold
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := n.reconciler.Evict(ctx, "uid-a", e)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the volume is busy")
			busy.Store(false)
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, n.reconciler.Evict(ctx, "uid-a", e), "%v %v", n.errors(), volumes.Calls())
			require.Empty(t, volumes.PreparedPods())
			n.stop()
		})
	}
}

// If ctx ends first, Evict returns the reason why the pod has not terminated, and the eviction continues.
func TestEvictReturnsLastErrorWhenContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mended atomic.Bool
		f := &critest.Faults{Runtime: rt, StopContainerFunc: func(ctx context.Context, next cri.Runtime, id string, grace time.Duration) error {
			if !mended.Load() {
				return errors.New("the shim does not answer")
			}
			return next.StopContainer(ctx, id, grace)
		}}
		n := startAgent(t, rt, f, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := n.reconciler.Evict(ctx, "uid-a", lowOnMemory(0))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "evict pod default/a: ")
		require.ErrorContains(t, err, "the shim does not answer")
		mended.Store(true)
		time.Sleep(time.Minute)
		n.requireStatus("a", "Failed, Evicted, main: exited 143")
	})
}

// Evict returns an error if the agent stops during the eviction.
func TestEvictReturnsErrorWhenRunReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() { done <- n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(0)) }()
		time.Sleep(time.Second)
		n.stop()
		require.EqualError(t, <-done, "evict pod default/a: Reconciler.Run has returned before the pod was down")
	})
}

func TestEvictRefusesUnknownPodAndInvalidEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		ctx := t.Context()
		err := n.reconciler.Evict(ctx, "uid-b", lowOnMemory(0))
		require.ErrorIs(t, err, cri.ErrNotFound)
		require.EqualError(t, err, "evict pod uid-b: not found: no source lists it, and it is not being torn down")
		require.EqualError(t, n.reconciler.Evict(ctx, "uid-a", podstatus.Eviction{}), "evict pod uid-a: Eviction.Reason: required")
		require.EqualError(t, n.reconciler.Evict(ctx, "uid-a", lowOnMemory(-time.Second)),
			"evict pod uid-a: Eviction.Grace: -1s must not be negative")
		n.stop()
		require.ErrorContains(t, n.reconciler.Evict(ctx, "uid-a", lowOnMemory(0)), "Reconciler.Run has returned")
	})
}

// A temporarily evicted pod is Pending with the reason, has no containers, and starts again after a back-off that doubles each
// time.
func TestTemporarilyEvictedPodRestartsWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		temporary := podstatus.Eviction{Reason: "Evicted", Message: "low on memory", Temporary: true}
		for i, wait := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
			require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", temporary))
			n.requireStatus("a", "Pending, Evicted, "+strings.TrimSuffix("main: exited 143 x"+string(rune('0'+i)), " x0"))
			pods, _ := n.reconciler.Active()
			require.Empty(t, pods, "an evicted pod is not active, so that other pods can use its resources")
			if i == 1 { // an agent restart does not change the back-off
				n.stop()
				n = startAgent(t, rt, rt, o)
				n.set(podtest.Pod("a"))
			}
			time.Sleep(wait - 100*time.Millisecond)
			require.Equal(t, i+1, ops(rt, "StartContainer"))
			time.Sleep(time.Second)
			require.Equal(t, i+2, ops(rt, "StartContainer"))
			require.Equal(t, corev1.PodRunning, n.phase("a"))
			require.Empty(t, n.status("a").Reason)
			pods, _ = n.reconciler.Active()
			require.Len(t, pods, 1)
			require.Equal(t, 1, strings.Count(n.errors(), "Options.Admit is nil"), "each agent reports once that no Admit checks the node before the restart")
		}
	})
}

// A temporarily evicted pod restarts only once it is admitted.
func TestTemporarilyEvictedPodWaitsForAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var pressure atomic.Bool
		n := startAgent(t, rt, rt, lifecycle.Options{Admit: func(context.Context, *corev1.Pod, []*corev1.Pod) error {
			if pressure.Load() {
				return &podstatus.Rejection{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]. "}
			}
			return nil
		}})
		once := podtest.Pod("once")
		once.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.set(podtest.Pod("a"), once)
		time.Sleep(time.Second)
		pressure.Store(true)
		for _, uid := range []string{"uid-a", "uid-once"} {
			require.NoError(t, n.reconciler.Evict(t.Context(), uid, podstatus.Eviction{Reason: "Evicted", Temporary: true}))
		}
		n.requireStatus("once", "Failed, Evicted, main: exited 143") // its restart policy forbids a restart
		time.Sleep(5 * time.Minute)
		n.requireStatus("a", "Pending, Evicted, main: exited 143")
		pressure.Store(false)
		time.Sleep(5 * time.Minute)
		n.requireStatus("a", "Running, main: ready x1")
		require.Equal(t, 3, ops(rt, "StartContainer"))
	})
}

// A pod with the name of an evicted pod waits until the evicted pod is removed.
func TestSuccessorOfEvictedPodWaitsForItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(600))
		n.set(pod)
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() { done <- n.reconciler.Evict(t.Context(), "uid-a", lowOnMemory(5*time.Second)) }()
		time.Sleep(time.Second)
		n.set()
		require.NoError(t, <-done)
		time.Sleep(10 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
		grace := rt.Calls("StopContainer")[0].Grace
		assert.Equal(t, 5*time.Second, grace)
		assert.Len(t, slices.Compact(rt.Calls("StartContainer")), 1)
	})
}

// A temporarily evicted pod whose active deadline passes waits for its admission, and then fails. Meanwhile it is not synced
// all the time.
func TestTemporarilyEvictedPodPastDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var full atomic.Bool
		n := startAgent(t, rt, rt, lifecycle.Options{Admit: func(context.Context, *corev1.Pod, []*corev1.Pod) error {
			if full.Load() {
				return &podstatus.Rejection{Reason: "OutOfmemory", Message: "no memory"}
			}
			return nil
		}})
		pod := podtest.Pod("a")
		pod.Spec.ActiveDeadlineSeconds = new(int64(60))
		n.set(pod)
		time.Sleep(30 * time.Second)
		full.Store(true)
		e := lowOnMemory(0)
		e.Temporary = true
		require.NoError(t, n.reconciler.Evict(t.Context(), "uid-a", e))
		time.Sleep(10 * time.Minute)
		require.Equal(t, corev1.PodPending, n.phase("a"))
		full.Store(false)
		time.Sleep(10 * time.Minute)
		require.Equal(t, corev1.PodFailed, n.phase("a"))
		require.Equal(t, "DeadlineExceeded", n.status("a").Reason)
		require.Equal(t, 1, ops(rt, "StartContainer"))
	})
}
