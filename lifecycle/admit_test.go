// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Tests of admission: whether a pod may run on this node.

// admitRecorder is an Admit that accepts a limited number of pods, and records its calls.
type admitRecorder struct {
	maxPods int

	mu    sync.Mutex
	calls []string // lines "name beside other pods"
}

func (g *admitRecorder) admit(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	var names []string
	for _, o := range others {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, strings.TrimSpace(pod.Name+" beside "+strings.Join(names, " ")))
	if len(others) >= g.maxPods {
		return &podstatus.Rejection{Reason: "OutOfpods", Message: "Node didn't have enough resource: pods"}
	}
	return nil
}

// admitCalls returns the calls so far.
func (g *admitRecorder) admitCalls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// podWithAge returns a pod that was created the given number of hours ago.
func podWithAge(name string, hours int) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 24-hours, 0, 0, 0, time.UTC))
	return pod
}

func TestAdmitCalledForOldestPodFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		g := &admitRecorder{maxPods: 2}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Admit: g.admit}
		n := startAgent(t, rt, rt, o)
		n.set(podWithAge("young", 1), podWithAge("old", 3), podWithAge("middle", 2))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"old beside", "middle beside old", "young beside middle old"}, g.admitCalls())
		require.Equal(t, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "OutOfpods", QOSClass: corev1.PodQOSBestEffort,
			Message: "Pod was rejected: Node didn't have enough resource: pods",
		}, n.status("young"))
		require.Contains(t, n.events, "OutOfpods!")
		pods, _ := n.reconciler.Active()
		require.Len(t, pods, 2)
		for _, c := range rt.Calls() {
			require.NotContains(t, c.Name, "young", "no container or sandbox is created for a rejected pod")
		}

		require.NoError(t, rt.Kill("old/main", 1))
		time.Sleep(time.Hour)
		require.Len(t, g.admitCalls(), 3, "Admit is called once per pod, and not for a container restart")
		require.Equal(t, corev1.PodFailed, n.phase("young"))

		n.stop() // the restarted agent does not call Admit again, although its node is smaller
		g = &admitRecorder{}
		o.Admit = g.admit
		n = startAgent(t, rt, rt, o)
		n.set(podWithAge("young", 1), podWithAge("old", 3), podWithAge("middle", 2), podWithAge("oldest", 4))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"oldest beside middle old"}, g.admitCalls())
		require.Equal(t, corev1.PodRunning, n.phase("old"))
		require.Equal(t, "OutOfpods", n.status("young").Reason)
	})
}

// A pod with running containers was admitted, even if all records are lost.
func TestAdmitNotCalledForRunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.stop()
		g := &admitRecorder{}
		n = startAgent(t, rt, rt, lifecycle.Options{Admit: g.admit})
		done := podtest.Pod("done")
		done.Status.Phase = corev1.PodSucceeded
		n.set(podtest.Pod("a"), done)
		time.Sleep(time.Minute)
		require.Empty(t, g.admitCalls())
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}

// After an error of Admit that is not a rejection the pod waits, and Admit is called again, also by a restarted agent.
func TestAdmitCalledAgainAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var known atomic.Bool
		var calls atomic.Int32
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Admit: func(ctx context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
			calls.Add(1)
			switch {
			case !known.Load():
				return errors.New("the node object is not known yet")
			case pod.Name == "hangs":
				return critest.Hang(ctx)
			}
			return nil
		}}
		n := startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(30 * time.Second)
		require.Contains(t, n.errors(), "admit pod: the node object is not known yet")
		require.Zero(t, ops(rt, "RunPodSandbox"))
		require.Greater(t, calls.Load(), int32(2))
		require.Less(t, calls.Load(), int32(10))
		n.stop()

		n = startAgent(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		require.Zero(t, ops(rt, "RunPodSandbox"))
		known.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("a"))

		n.set(podtest.Pod("a"), podWithAge("hangs", 5), podtest.Pod("b"))
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("b"), "a hanging Admit delays other pods by at most 10 s")
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(2 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"), "a hanging Admit does not delay restarts of an admitted pod")
		n.set()
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a", "b", "hangs"}, n.removedPods())
	})
}

// An Admit that ignores its canceled context delays its own pod only, and is reported.
func TestAdmitThatHangsDelaysItsPodOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var calls atomic.Int32
		release := make(chan struct{})
		n := startAgent(t, rt, rt, lifecycle.Options{Admit: func(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
			if pod.Name == "hangs" && calls.Add(1) == 1 {
				<-release
			}
			return nil
		}})
		n.set(podWithAge("hangs", 5), podtest.Pod("b"))
		time.Sleep(20 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, int32(1), calls.Load())
		require.Contains(t, n.errors(), "Options.Admit does not return")
		require.Empty(t, n.phase("hangs"))
		close(release)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("hangs"))
		require.Equal(t, int32(2), calls.Load(), "a late result is ignored")
	})
}

// Admit gets the allocated resources of a pod with a pending resize.
func TestAdmitGetsAllocatedResourcesOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mu sync.Mutex
		var got []string
		n := startAgent(t, rt, rt, lifecycle.Options{
			AdmitResize: func(*corev1.Pod) error { return errors.New("no room") },
			Admit: func(_ context.Context, _ *corev1.Pod, others []*corev1.Pod) error {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range others {
					got = append(got, o.Spec.Containers[0].Resources.Requests.Cpu().String())
				}
				return nil
			},
		})

		n.set(sizedPod(t, 1, "cpu=0.5/1"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=0.7/1"))
		time.Sleep(time.Second)
		n.set(sizedPod(t, 2, "cpu=0.7/1"), podtest.Pod("b"))
		time.Sleep(time.Second)

		mu.Lock()
		assert.Equal(t, []string{"500m"}, got)
		mu.Unlock()
		pods, _ := n.reconciler.Active()
		for _, pod := range pods {
			if pod.Name == "a" {
				assert.Equal(t, "500m", pod.Spec.Containers[0].Resources.Requests.Cpu().String())
			}
		}
	})
}

// The previous version of a pod delays the admission of the new version, but not that of other pods.
func TestAdmitCalledAfterPreviousPodOfNameIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		g := &admitRecorder{maxPods: 10}
		n := startAgent(t, rt, rt, lifecycle.Options{Admit: g.admit})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		next := podWithAge("a", 9)
		next.UID = "uid-next"
		n.set(next, podtest.Pod("b"))
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Equal(t, []string{"a beside", "b beside"}, g.admitCalls())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a beside", "b beside", "a beside b"}, g.admitCalls())
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}
