// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/pleg"
)

// run runs a reconciler and its generator on a runtime until the end of the test or a call of stop.
func run(t *testing.T, rt *critest.Runtime, o lifecycle.Options) (r *lifecycle.Reconciler, stop func()) {
	generator := pleg.New(rt, pleg.Options{})
	r, err := lifecycle.New(rt, generator, o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- generator.Run(ctx) }()
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		cancel()
		require.NoError(t, errors.Join(<-done, <-done))
	}
}

// ResourcesReleased is called once per agent process for a terminated pod that its source still lists. It is not called while a
// container runs, nor for a deleted pod.
func TestResourcesReleasedHookCalledOncePerAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			if c.Name == "work" {
				return critest.ExitAfter(2*time.Second, 0)
			}
			return critest.Script{}
		}})
		var mu sync.Mutex
		var left []string
		options := func() lifecycle.Options {
			return lifecycle.Options{Owner: "me", Hooks: lifecycle.Hooks{
				ResourcesReleased: func(id cri.PodIdentity) {
					mu.Lock()
					defer mu.Unlock()
					left = append(left, id.Name)
				},
			}}
		}
		released := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(left)
		}
		job := podtest.Pod("job", "work")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		both := podtest.Pod("both", "work", "serve")
		both.Spec.RestartPolicy = corev1.RestartPolicyNever
		wanted := lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{job, both, podtest.Pod("web", "serve")}}

		r, stop := run(t, rt, options())
		require.NoError(t, r.Set(wanted))
		time.Sleep(time.Second)
		require.Empty(t, released())
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"job"}, released())
		stop()

		r, stop = run(t, rt, options())
		require.NoError(t, r.Set(wanted))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"job", "job"}, released())
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file"}))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"job", "job"}, released())
		stop()
	})
}

// Pods returns the statuses that were passed to Hooks.StatusChanged.
func TestPodsReturnsStatusesPassedToHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Options{Script: func(*cri.ContainerConfig) critest.Script { return critest.ExitAfterStop(3*time.Second, 0) }})
		var statuses sync.Map // statuses passed to the hook, by name
		r, stop := run(t, rt, lifecycle.Options{Owner: "me", Hooks: lifecycle.Hooks{
			StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) { statuses.Store(pod.Name, st) },
		}})
		require.Empty(t, r.Pods())
		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{podtest.Pod("b"), podtest.Pod("a")}}))
		time.Sleep(10 * time.Second)
		pods := r.Pods()
		require.Len(t, pods, 2)
		for i, name := range []string{"a", "b"} {
			assert.Equal(t, name, pods[i].Pod.Name)
			assert.Equal(t, corev1.PodRunning, pods[i].Status.Phase)
			last, _ := statuses.Load(name)
			assert.Same(t, last, pods[i].Status)
			assert.False(t, pods[i].Deleted)
			one, found := r.Pod(pods[i].Pod.UID)
			assert.True(t, found)
			assert.Equal(t, pods[i], one)
		}
		_, found := r.Pod("none")
		require.False(t, found)

		require.NoError(t, r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{podtest.Pod("a")}}))
		time.Sleep(time.Second)
		pods = r.Pods()
		require.Len(t, pods, 2)
		assert.True(t, pods[1].Deleted, "a deleted pod is listed until it is torn down")
		time.Sleep(time.Minute)
		require.Len(t, r.Pods(), 1)
		_, found = r.Pod(pods[1].Pod.UID)
		require.False(t, found)
		stop()
	})
}

// Set returns a RefusedError for each refused pod, and passes it to the hook.
func TestSetReturnsAndReportsRefusedErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hooked []*lifecycle.RefusedError
		r, stop := run(t, critest.New(critest.Options{}), lifecycle.Options{Owner: "me", Hooks: lifecycle.Hooks{
			PodRefused: func(err *lifecycle.RefusedError) { hooked = append(hooked, err) },
		}})
		bad, good := podtest.Pod("bad"), podtest.Pod("good")
		bad.Spec.Containers[0].Image = ""
		err := r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{bad, good}})
		refused, ok := errors.AsType[*lifecycle.RefusedError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, cri.PodIdentity{UID: "uid-bad", Name: "bad", Namespace: "default"}, refused.Pod)
		require.Equal(t, "file", refused.Source)
		require.Equal(t, []*lifecycle.RefusedError{refused}, hooked)

		changed := good.DeepCopy()
		changed.Spec.HostNetwork = true
		err = r.Set(lifecycle.PodSet{Source: "file", Pods: []*corev1.Pod{changed}})
		_, ok = errors.AsType[*podapi.ImmutableError](err)
		require.True(t, ok, "%v", err)
		require.Len(t, hooked, 2)

		err = r.Set(lifecycle.PodSet{Source: "api", Pods: []*corev1.Pod{good}})
		require.ErrorContains(t, err, `pod default/good: source "api" lists its UID uid-good`)
		require.Len(t, hooked, 3)
		require.Equal(t, "api", hooked[2].Source)
		stop()
	})
}
