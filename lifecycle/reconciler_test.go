// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/pleg"
)

// node is an agent on an in-memory runtime, inside a synctest bubble.
type node struct {
	t          *testing.T
	rt         *critest.Runtime
	reconciler *lifecycle.Reconciler
	stop       func() // kills the agent, and waits until its goroutines have returned

	mu        sync.Mutex
	statuses  map[string]*corev1.PodStatus // newest status by pod name
	history   []string                     // "name phase reason" at each change
	readiness []string                     // "name status" of condition Ready, at each status
	events    []string                     // "Reason container", with an exclamation mark for a warning
	podEvents []podevents.Event            // all events in order
	errs      []string
	gone      []string
}

// startAgent starts an agent on a runtime; via is the runtime that the agent uses: rt or a wrapper of it.
func startAgent(t *testing.T, rt *critest.Runtime, via cri.Runtime, o lifecycle.Options) *node {
	n := &node{t: t, rt: rt, statuses: map[string]*corev1.PodStatus{}}
	o.Spec.LogRoot = t.TempDir()
	o.Owner = cmp.Or(o.Owner, "test")
	o.Hooks = lifecycle.Hooks{
		StartAttempted: o.Hooks.StartAttempted, Work: o.Hooks.Work,
		StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.statuses[pod.Name] = st
			ready, _, _ := strings.Cut(podtest.ConditionOf(*st, corev1.PodReady), " ")
			n.readiness = append(n.readiness, pod.Name+" "+ready)
			line := pod.Name + " " + string(st.Phase)
			for _, c := range st.ContainerStatuses {
				if c.State.Waiting != nil && c.State.Waiting.Reason != podstatus.ReasonContainerCreating {
					line += " " + c.State.Waiting.Reason
				}
			}
			if len(n.history) == 0 || n.history[len(n.history)-1] != line {
				n.history = append(n.history, line)
			}
		},
		Event: func(_ cri.PodIdentity, e podevents.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			require.NotEmpty(t, e.Message)
			n.podEvents = append(n.podEvents, e)
			if e.Type == corev1.EventTypeWarning {
				e.Reason += "!"
			}
			n.events = append(n.events, strings.TrimSpace(e.Reason+" "+e.Container))
		},
		PodRemoved: func(pod cri.PodIdentity) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.gone = append(n.gone, pod.Name)
		},
		Error: func(_ cri.PodIdentity, err error, _ time.Duration) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.errs = append(n.errs, err.Error())
		},
	}
	generator := pleg.New(via, pleg.Options{})
	n.reconciler = newReconciler(t, via, generator, o)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = n.reconciler.Run(ctx) })
	n.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(n.stop)
	return n
}

func (n *node) set(pods ...*corev1.Pod) {
	n.t.Helper()
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i] = pods[i].DeepCopy() // the agent keeps the previous object
		podapi.Default(pods[i])
	}
	require.NoError(n.t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

func (n *node) phase(name string) corev1.PodPhase {
	n.mu.Lock()
	defer n.mu.Unlock()
	if st := n.statuses[name]; st != nil {
		return st.Phase
	}
	return ""
}

// removedPods returns the names of the removed pods.
func (n *node) removedPods() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(slices.Values(n.gone))
}

// last returns the newest line of the history.
func (n *node) last() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.history[len(n.history)-1]
}

// reason returns the waiting reason of the first container of a pod.
func (n *node) reason(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.statuses[name].ContainerStatuses[0].State.Waiting.Reason
}

func (n *node) errors() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.errs, "\n")
}

// objects returns the numbers of sandboxes and containers in the runtime.
func (n *node) objects() (sandboxes, containers int) {
	snap, err := n.rt.List(n.t.Context())
	require.NoError(n.t, err)
	return len(snap.Sandboxes), len(snap.Containers)
}

func ops(rt *critest.Runtime, op string) int { return len(rt.Calls(op)) }

func TestReconcilerRunsAndTearsDownPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"), podtest.Pod("b", "one", "two"))
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Equal(t, 2, ops(rt, "RunPodSandbox"))
		require.Equal(t, 3, ops(rt, "StartContainer"))

		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		sandboxes, containers := n.objects()
		require.Equal(t, 1, sandboxes)
		require.Equal(t, 1, containers)
		require.Equal(t, []string{"b"}, n.removedPods())

		time.Sleep(10 * time.Minute)
		require.Equal(t, 3, ops(rt, "StartContainer"), "idle pods are not restarted")
		require.Empty(t, n.errors())
	})
}

func TestDeletedPodHasItsGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"main": critest.IgnoreTERM()})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.set()
		time.Sleep(4900 * time.Millisecond)
		c, ok := rt.Container("a/main")
		require.True(t, ok)
		require.Equal(t, cri.ContainerRunning, c.State)
		time.Sleep(200 * time.Millisecond)
		sandboxes, containers := n.objects()
		require.Zero(t, sandboxes+containers)
	})
}

// The back-off is stored in the runtime: a restarted agent continues it.
func TestCrashLoopBackOffContinuesAfterAgentRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.ExitAfter(time.Second, 1)
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(3 * time.Second) // first instance 0-1 s, second 1-2 s, then 10 s of back-off
		require.Equal(t, 2, ops(rt, "StartContainer"))
		require.Equal(t, "a Running CrashLoopBackOff", n.last())
		n.stop()

		n = startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(8500 * time.Millisecond)
		require.Equal(t, 2, ops(rt, "StartContainer"), "restart waits for its back-off at 11.5 s")
		time.Sleep(time.Second)
		require.Equal(t, 3, ops(rt, "StartContainer"), "container is restarted before 12.5 s")
		time.Sleep(20 * time.Second)
		require.Equal(t, 3, ops(rt, "StartContainer"), "next restart waits for 20 s from 13 s")
		time.Sleep(time.Second)
		require.Equal(t, 4, ops(rt, "StartContainer"))
		c, _ := rt.Container("a/main")
		require.Equal(t, uint32(3), c.Attempt)
		_, containers := n.objects()
		require.LessOrEqual(t, containers, 2, "containers of older attempts are removed")
	})
}

func TestPodsTerminateByRestartPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{
			"ok": critest.ExitAfter(time.Minute, 0), "bad": critest.ExitAfter(time.Minute, 3),
		})})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		good, bad := podtest.Pod("good", "ok"), podtest.Pod("bad", "bad")
		good.Spec.RestartPolicy, bad.Spec.RestartPolicy = corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
		n.set(good, bad)
		time.Sleep(2 * time.Minute)
		require.Equal(t, corev1.PodSucceeded, n.phase("good"))
		require.Equal(t, corev1.PodFailed, n.phase("bad"))
		snap, _ := rt.List(t.Context())
		for _, sb := range snap.Sandboxes {
			require.Equal(t, cri.SandboxNotReady, sb.State, "sandbox of a terminated pod is stopped")
		}
		stops := ops(rt, "StopPodSandbox")
		time.Sleep(time.Hour)
		require.Equal(t, stops, ops(rt, "StopPodSandbox"), "sandbox of a terminated pod is stopped once")

		n.stop()
		n = startAgent(t, rt, rt, lifecycle.Options{})
		n.set(good, bad)
		time.Sleep(10 * time.Minute)
		require.Equal(t, corev1.PodSucceeded, n.phase("good"), "restarted agent keeps the terminal phase")
		require.Equal(t, corev1.PodFailed, n.phase("bad"))
		require.Equal(t, 2, ops(rt, "StartContainer"))
	})
}

func TestChangedImageReplacesContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		pod := podtest.Pod("a")
		pod.Spec.Containers[0].Image = "busybox:2"
		n.set(pod)
		time.Sleep(time.Second)
		c, _ := rt.Container("a/main")
		require.Equal(t, "busybox:2", c.Image.UserSpecifiedImage)
		require.Equal(t, uint32(1), c.Attempt)
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))
	})
}

// An edited manifest is a new pod with the name of the previous version. The previous version terminates before the new pod
// starts, even if the edit happened while no agent ran, or if another manifest cannot be read.
func TestEditedPodWaitsForPreviousVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.stop()

		n = startAgent(t, rt, rt, lifecycle.Options{})
		successor := podtest.Pod("a")
		successor.UID = "uid-a-2"
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{successor}, Incomplete: true}))
		time.Sleep(4 * time.Second)
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, ops(rt, "RunPodSandbox"))
		sandboxes, _ := n.objects()
		require.Equal(t, 1, sandboxes)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
	})
}

func TestOrphanedPodsTornDownOnceSourcesReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.IgnoreTERM() }})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("mine"))
		time.Sleep(time.Second)
		n.stop()
		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{
			Pod: cri.PodIdentity{UID: "other", Name: "other", Namespace: "kube-system"},
		})
		require.NoError(t, err)

		n = startAgent(t, rt, rt, lifecycle.Options{Sources: []string{"test", "more"}})
		n.set()
		time.Sleep(time.Minute)
		sandboxes, _ := n.objects()
		require.Equal(t, 2, sandboxes, "orphaned pod is kept while a source has not reported")
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "more", Incomplete: true}))
		time.Sleep(time.Minute)
		sandboxes, _ = n.objects()
		require.Equal(t, 2, sandboxes, "orphaned pod is kept while a source is incomplete")
		require.NoError(t, n.reconciler.Set(lifecycle.PodSet{Source: "more"}))
		time.Sleep(4 * time.Second)
		sandboxes, _ = n.objects()
		require.Equal(t, 2, sandboxes, "orphaned pod has its own grace period of 5 s")
		time.Sleep(2 * time.Second)
		snap, _ := rt.List(t.Context())
		require.Len(t, snap.Sandboxes, 1)
		require.Equal(t, "other", snap.Sandboxes[0].Pod.UID, "pods of other programs are kept")
	})
}

// faulty wraps a runtime with faults and the optional interfaces that the agent uses.
type faulty struct {
	*critest.Faults
	cri.EventStreamer
	cri.PodLister
}

func TestSetRefusesSecondPodOfName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		first, sameName, sameUID := podtest.Pod("a"), podtest.Pod("a"), podtest.Pod("b")
		sameName.UID, sameUID.UID = "another", first.UID
		err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{first, sameName, sameUID}})
		require.EqualError(t, err, "pod default/a: another pod of the set has this name or UID another\n"+
			"pod default/b: another pod of the set has this name or UID uid-a")
		time.Sleep(time.Minute)
		n.requireStatus("a", "Running, main: ready")
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))
	})
}

func TestHungCallDelaysItsPodOnly(t *testing.T) {
	for _, op := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := critest.New(critest.Options{})
				var hung sync.Map
				via := faulty{&critest.Faults{Runtime: rt, Around: func(ctx context.Context, o, id string, call func() error) error {
					if o == op && strings.Contains(id, "bad") {
						hung.Store(id, true)
						return critest.Hang(ctx)
					}
					return call()
				}}, rt, rt}

				n := startAgent(t, rt, via, lifecycle.Options{Pacing: lifecycle.Pacing{Parallel: 2}})
				var pods []*corev1.Pod
				for i := range 5 {
					pods = append(pods, podtest.Pod(fmt.Sprintf("bad%d", i)))
				}
				for i := range 20 {
					pods = append(pods, podtest.Pod(fmt.Sprintf("good%d", i)))
				}
				n.set(pods...)

				// Two slots, five starts that hang: each releases its slot after 10 s.
				time.Sleep(31 * time.Second)
				for i := range 20 {
					require.Equal(t, corev1.PodRunning, n.phase(fmt.Sprintf("good%d", i)))
				}

				n.set(pods[5:]...)
				time.Sleep(10 * time.Second)
				count := 0
				hung.Range(func(any, any) bool { count++; return true })
				require.Equal(t, 5, count)
				require.Len(t, n.removedPods(), 5, "deleted pods do not wait for hanging calls")
			})
		})
	}
}

func TestFailedStartsReportedAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Images: []cri.Image{}, Pull: func(context.Context, cri.ImageSpec, *cri.Auth) (cri.Image, error) {
			return cri.Image{}, errors.New("registry says no")
		}})
		n := startAgent(t, rt, rt, lifecycle.Options{Pacing: lifecycle.Pacing{Rand: func() float64 { return 0 }}})
		never := podtest.Pod("never")
		never.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
		n.set(podtest.Pod("a"), never)
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, corev1.PodPending, n.phase("a"))
		require.Contains(t, n.history, "a Pending ErrImagePull")
		require.Equal(t, "ErrImageNeverPull", n.reason("never"))
		require.Contains(t, n.errors(), "registry says no")
		time.Sleep(5 * time.Second)
		require.Equal(t, "ImagePullBackOff", n.reason("a"))
		time.Sleep(25 * time.Second) // at 0, 10 and 30 s
		require.Equal(t, 3, ops(rt, "PullImage"))
		require.Equal(t, 1, ops(rt, "RunPodSandbox")-1, "failing pulls do not create further sandboxes")
	})
}

func TestSetRefusesUnsupportedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		broken := podtest.Pod("a")
		broken.Spec.Volumes = []corev1.Volume{{Name: "data"}}
		err := n.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: []*corev1.Pod{broken, podtest.Pod("b")}})
		require.ErrorContains(t, err, "default/a")
		require.ErrorContains(t, err, "spec.volumes")
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"), "pod continues after a refused update")
		require.Equal(t, corev1.PodRunning, n.phase("b"))
		require.Empty(t, n.removedPods())

		nameless := podtest.Pod("c")
		nameless.UID = ""
		require.ErrorContains(t, n.reconciler.Set(lifecycle.PodSet{Source: "more", Pods: []*corev1.Pod{nameless}}), "metadata.uid")
	})
}

func TestDrainTerminatesAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		n := startAgent(t, rt, rt, lifecycle.Options{})
		n.set(podtest.Pod("a"), podtest.Pod("b"))
		time.Sleep(time.Second)
		require.NoError(t, n.reconciler.Drain(t.Context()))
		sandboxes, containers := n.objects()
		require.Zero(t, sandboxes+containers)
		require.Equal(t, []string{"a", "b"}, n.removedPods())
	})
}
