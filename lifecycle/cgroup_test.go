// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
)

// podCgroups is a set of pods that have a cgroup, with or without a CPU quota. Its methods fail while err is set.
type podCgroups struct {
	mu       sync.Mutex
	has      map[string]bool
	limited  map[string]bool
	writes   int   // number of quota writes
	quotaErr error // error of quota writes only
	err      error
}

// Limit fails for a pod without a cgroup, like a tree of cgroups.
func (c *podCgroups) Limit(ctx context.Context, pod *corev1.Pod) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := string(pod.UID)
	if !c.has[uid] {
		return fmt.Errorf("cgroup of pod %s: %w", uid, fs.ErrNotExist)
	}
	c.writes++
	if c.quotaErr != nil {
		return c.quotaErr
	}
	c.setQuota(uid, true)
	return nil
}

// setQuota records whether the quota of a pod is enforced. The lock is held.
func (c *podCgroups) setQuota(uid string, limited bool) {
	if c.limited == nil {
		c.limited = map[string]bool{}
	}
	c.limited[uid] = limited
}

// isLimited reports whether the quota of a pod is enforced.
func (c *podCgroups) isLimited(uid string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has[uid] && c.limited[uid]
}

// quotaWrites returns the number of quota writes.
func (c *podCgroups) quotaWrites() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// CgroupParent implements [lifecycle.CgroupNamer].
func (*podCgroups) CgroupParent() func(*corev1.Pod) string {
	return func(pod *corev1.Pod) string { return "/kubepods/pod" + string(pod.UID) }
}

func (c *podCgroups) Exists(_ context.Context, pod *corev1.Pod) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has[string(pod.UID)], nil
}

func (c *podCgroups) Ensure(_ context.Context, pod *corev1.Pod) error {
	return c.set(string(pod.UID), true)
}

func (c *podCgroups) Remove(_ context.Context, uid string) error { return c.set(uid, false) }

func (c *podCgroups) set(uid string, has bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.has[uid] = has
		c.setQuota(uid, false)
	}
	return c.err
}

func (c *podCgroups) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func TestCgroupCreatedBeforeSandboxAndRemovedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		cgroups := &podCgroups{has: map[string]bool{}, err: errors.New("no room")}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: cgroups})
		n.set(podtest.Pod("a"))
		time.Sleep(10 * time.Second)
		require.Zero(t, ops(rt, "RunPodSandbox"), "no sandbox is created without a cgroup")
		require.Contains(t, n.errors(), "no room")
		require.Equal(t, corev1.PodPending, n.phase("a"))

		cgroups.fail(nil)
		time.Sleep(20 * time.Second)
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.True(t, cgroups.has["uid-a"])

		cgroups.fail(errors.New("busy"))
		n.set()
		time.Sleep(10 * time.Second)
		sandboxes, _ := n.objects()
		require.Zero(t, sandboxes)
		require.Empty(t, n.removedPods(), "pod is not removed while its cgroup exists")
		cgroups.fail(nil)
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{"a"}, n.removedPods())
		require.False(t, cgroups.has["uid-a"])
	})
}

// The cgroup of a completed job is removed while its source still lists it.
func TestCgroupOfCompletedPodRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"job": critest.ExitAfter(time.Second, 0)})})
		cgroups := &podCgroups{has: map[string]bool{}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: cgroups})
		job := podtest.Pod("a", "job")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.set(job)
		time.Sleep(500 * time.Millisecond)
		has := func() bool { has, _ := cgroups.Exists(t.Context(), job); return has }
		require.True(t, has())
		cgroups.fail(errors.New("busy"))
		time.Sleep(5 * time.Second)
		require.Contains(t, n.errors(), "busy")
		cgroups.fail(nil)
		time.Sleep(20 * time.Second)
		require.Equal(t, corev1.PodSucceeded, n.phase("a"))
		require.False(t, has())
	})
}

func TestSandboxRecreatedWhenCgroupIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{})
		cgroups := &podCgroups{has: map[string]bool{}}
		n := startAgent(t, rt, rt, lifecycle.Options{Cgroups: cgroups})
		n.set(podtest.Pod("a"))
		time.Sleep(time.Minute)
		require.Equal(t, 1, ops(rt, "RunPodSandbox"))

		require.NoError(t, cgroups.set("uid-a", false))
		time.Sleep(3 * time.Minute)
		require.Equal(t, 2, ops(rt, "RunPodSandbox"))
		require.Equal(t, corev1.PodRunning, n.phase("a"))
		require.True(t, cgroups.has["uid-a"])
	})
}

// A tree of cgroups calls Active for the requests to sum up, and MayRun before it removes a cgroup.
func TestActiveAndMayRunDuringLifeOfPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: critest.ByName(map[string]critest.Script{"job": critest.ExitAfter(time.Minute, 0)})})
		n := startAgent(t, rt, rt, lifecycle.Options{Sources: []string{"test"}})
		time.Sleep(time.Second)
		_, complete := n.reconciler.Active()
		require.False(t, complete, "Active is incomplete before a source reports")

		job := podtest.Pod("job", "job")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		n.set(podtest.Pod("a"), job)
		pods, complete := n.reconciler.Active()
		require.Len(t, pods, 2)
		require.True(t, complete)
		require.True(t, n.reconciler.MayRun("uid-a"), "a listed pod may run before its first start")
		require.False(t, n.reconciler.MayRun("uid-b"))

		time.Sleep(2 * time.Minute)
		require.Equal(t, corev1.PodSucceeded, n.phase("job"))
		pods, _ = n.reconciler.Active()
		require.Len(t, pods, 1, "Active omits terminated pods")
		require.True(t, n.reconciler.MayRun("uid-job"))

		n.set()
		pods, complete = n.reconciler.Active()
		require.Empty(t, pods)
		require.True(t, complete)
		require.True(t, n.reconciler.MayRun("uid-a"), "a terminating pod may run")
		time.Sleep(time.Minute)
		require.False(t, n.reconciler.MayRun("uid-a"))

		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid-x", Name: "x", Namespace: "other"}})
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		require.True(t, n.reconciler.MayRun("uid-x"), "a pod of another agent may run")
	})
}
