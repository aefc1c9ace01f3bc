// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
)

// podCgroups are fake cgroups of the pods in a scene. Their calls are recorded with the calls to the runtime.
type podCgroups struct {
	s      *scene
	fails  map[string]error // errors by method name
	exists bool
	resize func(ctx context.Context, c []cgroups.ContainerResize, runtime cgroups.Resizer) error // nil: resizes each container
}

func (c *podCgroups) callMethod(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		c.s.recordCall(method + ", cut short")
		return err
	}
	c.s.recordCall(method)
	return c.fails[method]
}

func (c *podCgroups) Exists(context.Context, *corev1.Pod) (bool, error) {
	return c.exists, c.fails["Exists"]
}

func (c *podCgroups) Ensure(ctx context.Context, _ *corev1.Pod) error {
	return c.callMethod(ctx, "Ensure")
}

func (c *podCgroups) Limit(ctx context.Context, _ *corev1.Pod) error {
	return c.callMethod(ctx, "Limit")
}

func (c *podCgroups) Remove(ctx context.Context, _ string) error { return c.callMethod(ctx, "Remove") }

func (c *podCgroups) Resize(ctx context.Context, _ *corev1.Pod, list []cgroups.ContainerResize, runtime cgroups.Resizer) error {
	if err := c.callMethod(ctx, "Resize"); err != nil {
		return err
	}
	if c.resize != nil {
		return c.resize(ctx, list, runtime)
	}
	for _, r := range list {
		if err := runtime.ResizeContainer(ctx, r.Name, r.To); err != nil {
			return err
		}
	}
	return nil
}

// withCgroups returns a scene whose pods have cgroups.
func withCgroups(t *testing.T, pod *corev1.Pod, o setting) (*scene, *podCgroups) {
	groups := &podCgroups{fails: map[string]error{}}
	o.node = func(n *executor.Node) { n.Cgroups = groups }
	s := newScene(t, pod, o)
	groups.s = s
	return s, groups
}

// The CPU quota is lifted before the start, and enforced when all containers run.
func TestQuotaLiftedForStartAndEnforcedAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withCgroups(t, podtest.Pod("a", "main", "side"), setting{})
		s.startContainers("main", "side")
		s.requireCalls("0s Ensure", "0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0",
			"0s CreateContainer side", "0s StartContainer uid-a-side-0", "0s Limit")

		require.NoError(t, s.rt.Kill("a/side", 1))
		a := s.startActions("side")
		a.Sandbox, a.SandboxID, a.Start[0].Attempt = nil, "uid-a-0", 1
		require.NoError(t, s.execute(t.Context(), a))
		s.requireCalls("0s Ensure", "0s CreateContainer side", "0s StartContainer uid-a-side-1", "0s Limit")
	})
}

// The quota is enforced after a start that fails or is cancelled.
func TestQuotaEnforcedAfterFailedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withCgroups(t, podtest.Pod("a", "main", "side"), setting{
			scripts: map[string]critest.Script{"side": {StartAfter: time.Hour}},
		})
		s.setFault("CreateContainer main", errors.New("out of order"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.Error(t, s.execute(ctx, s.startActions("main", "side")))
		s.requireCalls("0s Ensure", "0s RunPodSandbox uid-a", "0s CreateContainer main",
			"0s CreateContainer side", "0s StartContainer uid-a-side-0", "1m0s Limit")
	})
}

// The quota is enforced if Ensure has failed but may have lifted it.
func TestQuotaEnforcedAfterEnsureError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, podtest.Pod("a", "main", "side"), setting{})
		groups.fails["Ensure"] = errors.New("no answer")
		require.ErrorContains(t, s.execute(t.Context(), s.startActions("main")), "no answer")
		s.requireCalls("0s Ensure") // there was no cgroup, so nothing was lifted
		groups.fails["Ensure"] = nil
		s.startContainers("main")
		groups.fails["Ensure"] = errors.New("no answer")
		a := s.startActions("side")
		a.Sandbox, a.SandboxID = nil, "uid-a-0"
		require.ErrorContains(t, s.execute(t.Context(), a), "no answer")
		s.requireCalls("0s Ensure", "0s Limit")
	})
}

// A container with a postStart hook runs under the quota during the hook. Containers that start later start without it.
func TestQuotaEnforcedDuringPostStartHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := podtest.Pod("a", "main", "side")
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: podtest.Exec("hello")}
		s, _ := withCgroups(t, pod, setting{scripts: map[string]critest.Script{"main": {Exec: execTaking(time.Minute, 0)}}})
		s.startContainers("main", "side")
		s.requireCalls("0s Ensure", "0s RunPodSandbox uid-a", "0s CreateContainer main", "0s StartContainer uid-a-main-0",
			"0s Limit", "0s ExecSync uid-a-main-0",
			"1m0s Ensure", "1m0s CreateContainer side", "1m0s StartContainer uid-a-side-0", "1m0s Limit")
	})
}

// The worker enforces the quota during a slow start. Containers that start later start without it.
func TestQuotaEnforcedDuringSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withCgroups(t, podtest.Pod("a", "main", "side", "last"), setting{
			scripts: map[string]critest.Script{"side": {StartAfter: time.Minute}},
			latency: func(op string) time.Duration {
				return map[string]time.Duration{"RunPodSandbox": 20 * time.Second}[op] // no container runs during this time
			},
		})
		ended := make(chan error, 1)
		go func() { ended <- s.execute(t.Context(), s.startActions("main", "side", "last")) }()
		var due <-chan time.Time
		for waiting := true; waiting; {
			select {
			case <-s.x.Quota.RunsUnlimited():
				due = s.x.Quota.EnforceTimer(due)
			case <-due:
				due = nil
				s.x.Quota.EnforceNow(t.Context(), s.pod)
			case err := <-ended:
				require.NoError(t, err)
				waiting = false
			}
		}
		s.requireCalls("0s Ensure", "0s RunPodSandbox uid-a", "20s CreateContainer main", "20s StartContainer uid-a-main-0",
			"20s CreateContainer side", "20s StartContainer uid-a-side-0", "30s Limit",
			"1m20s Ensure", "1m20s CreateContainer last", "1m20s StartContainer uid-a-last-0", "1m20s Limit")
		first := s.x.Quota.EnforceTimer(nil)
		require.Equal(t, first, s.x.Quota.EnforceTimer(first), "the timer of the first container is kept")
	})
}

// A quota that a previous agent has lifted is enforced once, at the first sync and before all other work.
func TestQuotaOfPreviousAgentEnforcedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, podtest.Pod("a", "main", "side"), setting{})
		s.startContainers("main", "side")
		rest := func() error {
			s.mu.Lock()
			s.calls = nil
			s.mu.Unlock()
			_, err := s.x.ExecuteIdle(t.Context(), s.pod, s.observed(), &plan.Actions{})
			return err
		}
		require.NoError(t, rest())
		s.requireCalls()

		s.createExecutor()
		groups.fails["Limit"] = errors.New("cpu.max: read-only")
		require.ErrorContains(t, rest(), "cpu.max: read-only")
		groups.fails["Limit"] = fmt.Errorf("cgroup of the pod: %w", fs.ErrNotExist)
		require.NoError(t, rest(), "a missing cgroup is no error")
		groups.fails["Limit"] = nil
		require.NoError(t, rest())
		s.requireCalls("0s Limit")
		require.NoError(t, rest())
		s.requireCalls()

		s.createExecutor()
		require.NoError(t, s.execute(t.Context(), plan.Actions{Kill: []plan.Kill{newKill("side", time.Second)}}))
		s.requireCalls("0s Limit", "0s StopContainer uid-a-side-0 2s")

		s.createExecutor()
		require.NoError(t, s.rt.Kill("a/main", 0))
		require.NoError(t, rest(), "no container runs")
		s.requireCalls()
	})
}

// A failed resize does not leave the quota lifted.
func TestQuotaEnforcedAfterFailedResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, podtest.Pod("a"), setting{})
		s.startContainers("main")
		s.createExecutor()
		groups.fails["Resize"] = errors.New("memory is in use")
		require.ErrorContains(t, s.execute(t.Context(), plan.Actions{ResizePod: true, SandboxID: "uid-a-0"}), "memory is in use")
		s.requireCalls("0s Resize", "0s Limit")
	})
}

// The cgroup of a terminated pod that its source still lists is removed once.
func TestCgroupOfTerminatedPodRemovedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, podtest.Pod("a"), setting{})
		s.startContainers("main")
		done := &plan.Actions{PodTerminal: true}
		rest := func() bool {
			left, err := s.x.ExecuteIdle(t.Context(), s.pod, s.observed(), done)
			require.ErrorIs(t, err, groups.fails["Remove"])
			return left
		}
		require.False(t, rest(), "the container runs")
		require.NoError(t, s.rt.Kill("a/main", 0))
		require.False(t, rest(), "the sandbox is ready")
		require.NoError(t, s.execute(t.Context(), plan.Actions{StopSandboxes: []string{"uid-a-0"}}))
		groups.fails["Remove"] = errors.New("busy")
		require.False(t, rest())
		groups.fails["Remove"] = nil
		require.True(t, rest())
		require.False(t, rest(), "the cgroup is already removed")
		s.requireCalls("0s StopPodSandbox uid-a-0", "0s Remove", "0s Remove")
	})
}

func TestIsCgroupMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, groups := withCgroups(t, podtest.Pod("a"), setting{})
		lacks := func() (bool, error) { return s.x.IsCgroupMissing(t.Context(), s.pod, s.observed()) }
		got, err := lacks()
		require.NoError(t, err)
		require.False(t, got, "without running containers the first start creates the cgroup")
		s.startContainers("main")
		got, err = lacks()
		require.NoError(t, err)
		require.True(t, got)
		groups.exists = true
		got, err = lacks()
		require.NoError(t, err)
		require.False(t, got)
		groups.exists, groups.fails["Exists"] = false, errors.New("out of order")
		got, err = lacks()
		require.ErrorContains(t, err, "out of order")
		require.False(t, got, "a cgroup whose existence is unknown does not count as missing")
	})
}
