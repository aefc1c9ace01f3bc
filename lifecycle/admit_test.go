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

// gate is an Admit that accepts a limited number of pods, and records its calls.
type gate struct {
	room int

	mu    sync.Mutex
	asked []string // "name beside others"
}

func (g *gate) admit(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	var names []string
	for _, o := range others {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, strings.TrimSpace(pod.Name+" beside "+strings.Join(names, " ")))
	if len(others) >= g.room {
		return &podstatus.Rejection{Reason: "OutOfpods", Message: "Node didn't have enough resource: pods"}
	}
	return nil
}

// questions returns the calls so far.
func (g *gate) questions() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asked)
}

// aged returns a pod that was created the given number of hours ago.
func aged(name string, hours int) *corev1.Pod {
	pod := podtest.Pod(name)
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 24-hours, 0, 0, 0, time.UTC))
	return pod
}

func TestAdmitCalledForOldestPodFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		g := &gate{room: 2}
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Admit: g.admit}
		n := boot(t, rt, rt, o)
		n.set(aged("young", 1), aged("old", 3), aged("middle", 2))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"old beside", "middle beside old", "young beside middle old"}, g.questions())
		require.Equal(t, corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "OutOfpods", QOSClass: corev1.PodQOSBestEffort,
			Message: "Pod was rejected: Node didn't have enough resource: pods",
		}, n.status("young"))
		require.Contains(t, n.events, "OutOfpods!")
		pods, _ := n.reconciler.Active()
		require.Len(t, pods, 2)
		for _, c := range rt.Calls() {
			require.NotContains(t, c.Name, "young", "nothing is made for it")
		}

		require.NoError(t, rt.Kill("old/main", 1))
		time.Sleep(time.Hour)
		require.Len(t, g.questions(), 3, "each is asked about once, also after a restart of a container")
		require.Equal(t, corev1.PodFailed, n.phase("young"))

		n.stop() // the next agent does not call Admit again, although its node is smaller
		g = &gate{}
		o.Admit = g.admit
		n = boot(t, rt, rt, o)
		n.set(aged("young", 1), aged("old", 3), aged("middle", 2), aged("oldest", 4))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"oldest beside middle old"}, g.questions())
		require.Equal(t, corev1.PodRunning, n.phase("old"))
		require.Equal(t, "OutOfpods", n.status("young").Reason)
	})
}

// A running pod was admitted before, even if all records are lost.
func TestAdmitNotCalledForRunningPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := boot(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.stop()
		g := &gate{}
		n = boot(t, rt, rt, lifecycle.Options{Admit: g.admit})
		done := podtest.Pod("done")
		done.Status.Phase = corev1.PodSucceeded
		n.set(podtest.Pod("a"), done)
		time.Sleep(time.Minute)
		require.Empty(t, g.questions())
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}

// After an error of Admit that is no rejection the pod waits, and Admit is called again, also by a restarted agent.
func TestAdmitCalledAgainAfterError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var known atomic.Bool
		var asked atomic.Int32
		o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: t.TempDir()}, Admit: func(ctx context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
			asked.Add(1)
			switch {
			case !known.Load():
				return errors.New("the node object is not known yet")
			case pod.Name == "hangs":
				return critest.Hang(ctx)
			}
			return nil
		}}
		n := boot(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(30 * time.Second)
		require.Contains(t, n.errors(), "admit pod: the node object is not known yet")
		require.Zero(t, ops(rt, "RunPodSandbox"))
		require.Greater(t, asked.Load(), int32(2))
		require.Less(t, asked.Load(), int32(10))
		n.stop()

		n = boot(t, rt, rt, o)
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		require.Zero(t, ops(rt, "RunPodSandbox"))
		known.Store(true)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("a"))

		n.set(podtest.Pod("a"), aged("hangs", 5), podtest.Pod("b"))
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("b"), "one that hangs has 10 s")
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(2 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"), "and holds up nothing that was admitted")
		n.set()
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a", "b", "hangs"}, n.left())
	})
}

// An Admit that ignores the end of its context delays its own pod only, and is reported.
func TestAdmitThatHangsDelaysItsPodOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var asked atomic.Int32
		release := make(chan struct{})
		n := boot(t, rt, rt, lifecycle.Options{Admit: func(_ context.Context, pod *corev1.Pod, _ []*corev1.Pod) error {
			if pod.Name == "hangs" && asked.Add(1) == 1 {
				<-release
			}
			return nil
		}})
		n.set(aged("hangs", 5), podtest.Pod("b"))
		time.Sleep(20 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		time.Sleep(10 * time.Minute)
		require.Equal(t, int32(1), asked.Load())
		require.Contains(t, n.errors(), "Options.Admit does not return")
		require.Empty(t, n.phase("hangs"))
		close(release)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("hangs"))
		require.Equal(t, int32(2), asked.Load(), "a late result is ignored")
	})
}

// A pod with a pending resize counts with its allocated resources.
func TestAdmitGetsAllocatedResourcesOfOtherPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		var mu sync.Mutex
		var got []string
		n := boot(t, rt, rt, lifecycle.Options{
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
		g := &gate{room: 10}
		n := boot(t, rt, rt, lifecycle.Options{Admit: g.admit})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		next := aged("a", 9)
		next.UID = "uid-next"
		n.set(next, podtest.Pod("b"))
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Equal(t, []string{"a beside", "b beside"}, g.questions())
		time.Sleep(time.Minute)
		require.Equal(t, []string{"a beside", "b beside", "a beside b"}, g.questions())
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}
