// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/lifecycle"
)

func TestRejectedPodsOfControllerAreReportedOneByOne(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		owned := func(uid string) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(uid), Controller: new(true), Kind: "ReplicaSet", Name: uid}}
			}
		}
		var pods []*corev1.Pod
		for i := range 5 {
			pods = append(pods, r.bindPod(fmt.Sprint("a-", i), owned("a")))
		}
		pods = append(pods, r.bindPod("b", owned("b")), r.bindPod("alone", nil))
		begin := time.Now()
		for _, pod := range pods {
			r.setStatus(pod, corev1.PodFailed, false, "Pod was rejected: Node didn't have enough resource: cpu")
		}
		at := func() (failed []string) {
			for _, pod := range pods {
				if r.getPod(pod.Name).Status.Phase == corev1.PodFailed {
					failed = append(failed, pod.Name)
				}
			}
			return failed
		}
		time.Sleep(10 * time.Millisecond)
		assert.Len(t, at(), 3, "the first pod of each controller, and the pod without a controller: %s", at())
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{time.Second, 4}, {2900 * time.Millisecond, 4}, {3 * time.Second, 5}, {6900 * time.Millisecond, 5}, {7 * time.Second, 6}} {
			time.Sleep(time.Until(begin.Add(step.after + 20*time.Millisecond)))
			assert.Len(t, at(), step.want, "%s", step.after)
		}
		last := pods[slices.IndexFunc(pods, func(p *corev1.Pod) bool { return r.getPod(p.Name).Status.Phase != corev1.PodFailed })]
		require.NoError(t, r.server.Delete(last, nil))
		r.statuses.ResourcesReleased(identity(last))
		time.Sleep(100 * time.Millisecond)
		assert.True(t, r.isRemoved(last.Name), "the status of a deleted pod is not delayed")
	})
}

func TestDeletedPodWithoutAgentPodIsRemoved(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		stays, pod, running := r.bindPod("stays", nil), r.bindPod("web", nil), r.bindPod("running", nil)
		r.locked(func() { r.may["uid-running"] = true })
		require.NoError(t, r.server.Delete(pod, nil))
		require.NoError(t, r.server.Delete(running, nil))
		time.Sleep(900 * time.Millisecond)
		assert.False(t, r.isRemoved("web"), "a pod is not removed within a second: the agent may be about to start it")
		time.Sleep(200 * time.Millisecond)
		assert.True(t, r.isRemoved("web"))
		patches := r.server.Requests(apiservertest.Match{Verb: "patch", Resource: "pods"})
		require.Len(t, patches, 1)
		assert.Contains(t, string(patches[0].Body), `"phase":"Failed"`, "a terminal phase is sent before the removal, because a controller may wait for it")
		time.Sleep(time.Hour)
		assert.Equal(t, stays.Status, r.getPod("stays").Status)
		assert.Equal(t, corev1.PodPending, r.getPod("running").Status.Phase)
		r.locked(func() { r.may["uid-running"] = false })
		time.Sleep(12 * time.Second)
		assert.True(t, r.isRemoved("running"))
	})
}

func TestFlushReturnsAfterStatusesAreSent(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{}, func(t *testing.T, r *reporting) {
		for i := range 3 {
			pod := r.bindPod(fmt.Sprint("web-", i), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{UID: "a", Controller: new(true)}}
			})
			r.setStatus(pod, corev1.PodFailed, false, "Pod was rejected: the node is shutting down")
		}
		synctest.Wait()
		require.NoError(t, r.statuses.Flush(t.Context()))
		for i := range 3 {
			assert.Equal(t, corev1.PodFailed, r.getPod(fmt.Sprint("web-", i)).Status.Phase, "Flush sends the status without waiting for rejections of other pods")
		}
		r.server.SetUnavailable(true)
		r.setStatus(r.getPod("web-0"), corev1.PodFailed, false, "again")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := r.statuses.Flush(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "1 pods are waiting")
	})
}

// With one request at a time, urgent requests are sent first, and no request waits forever.
func TestUrgentStatusesAreSentFirst(t *testing.T) {
	runWithStatuses(t, apiserver.StatusesOptions{Parallel: 1}, func(t *testing.T, r *reporting) {
		var pods []*corev1.Pod
		for i := range 40 {
			pods = append(pods, r.bindPod(fmt.Sprintf("pod-%02d", i), nil))
		}
		synctest.Wait()
		remove := r.server.Delay("patch", "pods", time.Second)
		defer remove()
		for i, pod := range pods {
			switch i {
			case 30:
				r.setStatus(pod, corev1.PodSucceeded, false, "")
			case 31:
				r.setStatus(pod, corev1.PodRunning, true, "")
			default:
				r.setStatus(pod, corev1.PodPending, false, "noise")
			}
		}
		time.Sleep(3500 * time.Millisecond)
		assert.Equal(t, corev1.PodSucceeded, r.getPod("pod-30").Status.Phase)
		assert.Equal(t, corev1.PodRunning, r.getPod("pod-31").Status.Phase)
		assert.Equal(t, 4, r.countRequests("patch"))
		time.Sleep(time.Minute)
		assert.Zero(t, r.statuses.Pending())
	})
}

func TestStatusesNamesMissingOption(t *testing.T) {
	server := apiservertest.NewServer(apiservertest.Options{})
	defer server.Close()
	source, err := apiserver.New(server.Config(), apiserver.Options{NodeName: "n1"})
	require.NoError(t, err)
	for want, o := range map[string]apiserver.StatusesOptions{
		"StatusesOptions.Pods: required":   {},
		"StatusesOptions.MayRun: required": {Pods: func() []lifecycle.PodState { return nil }},
		"Parallel: -1 must be at least 0":  {Pods: func() []lifecycle.PodState { return nil }, MayRun: func(string) bool { return true }, Parallel: -1},
	} {
		_, err := source.Statuses(o)
		assert.ErrorContains(t, err, want)
	}
}
