// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// quotaRuntime records its calls, and whether the quota of the pod was enforced at each.
type quotaRuntime struct {
	*critest.Runtime
	cgroups *podCgroups
	delay   func(op string) time.Duration // delay of each creating or starting call; nil: no delay

	mu    sync.Mutex
	calls []string // "op", or "op throttled" if the quota was enforced
}

func (t *quotaRuntime) recordCall(op string) {
	t.mu.Lock()
	if t.cgroups.isLimited("uid-a") {
		op += " throttled"
	}
	t.calls = append(t.calls, op)
	t.mu.Unlock()
	if t.delay != nil {
		time.Sleep(t.delay(op))
	}
}

func (t *quotaRuntime) RunSandbox(ctx context.Context, c *cri.SandboxConfig) (string, error) {
	t.recordCall("RunPodSandbox")
	return t.Runtime.RunSandbox(ctx, c)
}

func (t *quotaRuntime) CreateContainer(ctx context.Context, sandbox string, c *cri.ContainerConfig, s *cri.SandboxConfig) (string, error) {
	t.recordCall("CreateContainer " + c.Name)
	return t.Runtime.CreateContainer(ctx, sandbox, c, s)
}

func (t *quotaRuntime) StartContainer(ctx context.Context, id string) error {
	t.recordCall("StartContainer")
	return t.Runtime.StartContainer(ctx, id)
}

// takeCalls returns the calls since the last call of takeCalls.
func (t *quotaRuntime) takeCalls() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	calls := t.calls
	t.calls = nil
	return calls
}

func newQuotaRuntime() *quotaRuntime {
	return &quotaRuntime{Runtime: critest.New(critest.Options{}), cgroups: &podCgroups{has: map[string]bool{}}}
}

// The quota is lifted during each start, also after a kill, and enforced at all other times. A running pod causes no further
// writes.
func TestQuotaEnforcedWhenContainersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.Equal(t, []string{"RunPodSandbox", "CreateContainer x", "StartContainer", "CreateContainer y", "StartContainer"}, rt.takeCalls())
		require.True(t, rt.cgroups.isLimited("uid-a"))

		time.Sleep(time.Minute)
		writes := rt.cgroups.quotaWrites()
		require.NoError(t, rt.Kill("uid-a/x", 137))
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"CreateContainer x", "StartContainer"}, rt.takeCalls(), "quota is lifted for a restart beside a running container")
		require.True(t, rt.cgroups.isLimited("uid-a"))
		require.Equal(t, writes+1, rt.cgroups.quotaWrites())

		time.Sleep(24 * time.Hour)
		require.Equal(t, writes+1, rt.cgroups.quotaWrites())
	})
}

// After a crash during a start, the restarted agent enforces the lifted quota once, and restarts no container.
func TestQuotaEnforcedAfterAgentCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		n.stop()
		rt.cgroups.mu.Lock()
		rt.cgroups.limited["uid-a"] = false
		rt.cgroups.mu.Unlock()
		writes := rt.cgroups.quotaWrites()
		rt.takeCalls()

		n = startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Second)
		require.True(t, rt.cgroups.isLimited("uid-a"))
		time.Sleep(time.Hour)
		require.Equal(t, writes+1, rt.cgroups.quotaWrites())
		require.Empty(t, rt.takeCalls())
	})
}

// After a crash the quota is enforced although the pod is deleted and its containers take an hour to terminate.
func TestQuotaEnforcedAfterAgentCrashAndDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		rt.Runtime = critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(time.Hour, 0) }})
		pod := podtest.Pod("a")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(7200))
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(pod)
		time.Sleep(time.Second)
		n.stop()
		rt.cgroups.mu.Lock()
		rt.cgroups.limited["uid-a"] = false
		rt.cgroups.mu.Unlock()

		n = startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		pod = pod.DeepCopy()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(7200))
		n.set(pod)
		time.Sleep(time.Second)
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// After a crash the quota is enforced although the start waits for a start slot.
func TestQuotaEnforcedAfterAgentCrashWithoutSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(time.Second)
		n.stop()
		rt.cgroups.mu.Lock()
		rt.cgroups.limited["uid-a"] = false
		rt.cgroups.mu.Unlock()
		require.NoError(t, rt.Kill("uid-a/y", 137))

		rt.delay = func(string) time.Duration { return 9 * time.Second }
		n = startAgent(t, rt.Runtime, rt, lifecycle.Options{
			Cgroups: rt.cgroups, Pacing: lifecycle.Pacing{Parallel: 1}, Sources: []string{"test", "other"}, // the source "other" has not reported, so that pod a is not orphaned
		})
		n.set(podtest.Pod("b"))
		time.Sleep(time.Second)
		rt.takeCalls()
		n.set(podtest.Pod("b"), podtest.Pod("a", "x", "y"))
		time.Sleep(time.Second)
		require.Empty(t, rt.takeCalls(), "container y waits for the start slot of pod b")
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// lostResponses are cgroups whose Ensure takes effect but returns an error while lost is set.
type lostResponses struct {
	*podCgroups
	lost atomic.Bool
}

func (l *lostResponses) Ensure(ctx context.Context, pod *corev1.Pod) error {
	err := l.podCgroups.Ensure(ctx, pod)
	if l.lost.Load() {
		return context.DeadlineExceeded
	}
	return err
}

// A quota that was lifted by a call which returned an error is enforced.
func TestQuotaEnforcedAfterEnsureError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		groups := &lostResponses{podCgroups: rt.cgroups}
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: groups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(time.Minute)
		groups.lost.Store(true)
		require.NoError(t, rt.Kill("uid-a/y", 137))
		time.Sleep(10 * time.Minute)
		require.Contains(t, n.errors(), context.DeadlineExceeded.Error())
		require.True(t, rt.cgroups.isLimited("uid-a"))
		groups.lost.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// After a crash the quota is enforced although a pending resize fails.
func TestQuotaEnforcedAfterAgentCrashDuringFailedResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		tree := &sizedCgroups{podCgroups: podCgroups{has: map[string]bool{}}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 1, "cpu=500m/500m memory=64Mi/64Mi"))
		time.Sleep(time.Second)
		n.stop()
		tree.mu.Lock()
		tree.limited["uid-a"] = false
		tree.mu.Unlock()
		tree.failPodResize(errors.New("memory is in use"))

		n = startAgent(t, rt, rt, lifecycle.Options{Cgroups: tree})
		n.set(sizedPod(t, 2, "cpu=400m/400m memory=96Mi/96Mi"))
		time.Sleep(time.Second)
		require.NotEmpty(t, tree.takeCalls())
		require.Contains(t, n.errors(), "memory is in use")
		require.True(t, tree.isLimited("uid-a"))
	})
}

// During a start that hangs or waits, running containers have no quota for at most Options.Pacing.StartSlotTimeout. Later starts
// of the pod lift it again.
func TestQuotaEnforcedAfterStartSlotTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		rt.delay = func(op string) time.Duration {
			return map[string]time.Duration{"RunPodSandbox": time.Minute, "CreateContainer y": time.Minute}[op]
		}
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y", "z"))
		time.Sleep(59 * time.Second)
		require.False(t, rt.cgroups.isLimited("uid-a"), "no quota during the creation of the sandbox")
		time.Sleep(2 * time.Second)
		require.False(t, rt.cgroups.isLimited("uid-a"), "no quota while the start of y has its slot")
		time.Sleep(10 * time.Second)
		require.True(t, rt.cgroups.isLimited("uid-a"), "quota is enforced after StartSlotTimeout")
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			"RunPodSandbox", "CreateContainer x", "StartContainer", "CreateContainer y", "StartContainer throttled",
			"CreateContainer z", "StartContainer",
		}, rt.takeCalls())
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// A start that does not return does not leave the quota lifted.
func TestQuotaEnforcedWhileStartHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		hang := make(chan struct{})
		defer close(hang)
		rt.delay = func(op string) time.Duration {
			if strings.HasPrefix(op, "CreateContainer y") {
				<-hang
			}
			return 0
		}
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(11 * time.Second)
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// The quota is enforced during a postStart hook, because the container runs already.
func TestQuotaEnforcedDuringPostStartHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		var inHook atomic.Bool
		rt.Runtime = critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script {
			return critest.Script{Exec: func(context.Context, []string) (cri.ExecResult, error) {
				inHook.Store(rt.cgroups.isLimited("uid-a"))
				return cri.ExecResult{}, nil
			}}
		}})
		pod := podtest.Pod("a", "x", "y")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hello"}}}}
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(pod)
		time.Sleep(10 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.True(t, inHook.Load())
		require.Equal(t, []string{"RunPodSandbox", "CreateContainer x", "StartContainer", "CreateContainer y", "StartContainer"}, rt.takeCalls(),
			"quota is lifted again for the start of y after the hook of x")
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// After a failed start the quota is enforced. A failed quota write is reported and retried.
func TestQuotaEnforcedAfterFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		var broken atomic.Bool
		broken.Store(true)
		faults := &critest.Faults{Runtime: rt, CreateContainerFunc: func(
			ctx context.Context, next cri.Runtime, sandbox string, c *cri.ContainerConfig, s *cri.SandboxConfig,
		) (string, error) {
			if c.Name == "y" && broken.Load() {
				return "", errors.New("no such device")
			}
			return next.CreateContainer(ctx, sandbox, c, s)
		}}
		n := startAgent(t, rt.Runtime, faults, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(500 * time.Millisecond)
		require.Contains(t, n.errors(), "no such device")
		require.True(t, rt.cgroups.isLimited("uid-a"))

		rt.cgroups.mu.Lock()
		rt.cgroups.quotaErr = errors.New("cpu.max: read-only")
		rt.cgroups.mu.Unlock()
		broken.Store(false)
		time.Sleep(time.Minute)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.Contains(t, n.errors(), "cpu.max: read-only")
		require.False(t, rt.cgroups.isLimited("uid-a"))
		require.Less(t, rt.cgroups.quotaWrites(), 30, "failed quota writes have a back-off")
		rt.cgroups.mu.Lock()
		rt.cgroups.quotaErr = nil
		rt.cgroups.mu.Unlock()
		time.Sleep(20 * time.Second)
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}

// An agent that is stopped during a start enforces the quota first, if possible.
func TestQuotaEnforcedWhenAgentStopsDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newQuotaRuntime()
		rt.delay = func(string) time.Duration { return 3 * time.Second }
		n := startAgent(t, rt.Runtime, rt, lifecycle.Options{Cgroups: rt.cgroups})
		n.set(podtest.Pod("a", "x", "y"))
		time.Sleep(10 * time.Second)
		require.False(t, rt.cgroups.isLimited("uid-a"))
		n.stop()
		require.True(t, rt.cgroups.isLimited("uid-a"))
	})
}
