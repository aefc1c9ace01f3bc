// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package resizequeue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/lifecycle/resizequeue"
)

// pod returns a pod with these requests. If guaranteed is true, its limits are equal.
func pod(name, cpu, memory string, priority int32, guaranteed bool) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Spec.Priority = name, types.UID(name), &priority
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}
	if guaranteed {
		r.Limits = r.Requests
	}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: r}}
	return p
}

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// The order is that of sortPendingResizes in pkg/kubelet/allocation/allocation_manager.go.
func TestNextUsesOrderOfKubelet(t *testing.T) {
	old, recent := start().Add(-time.Hour), start().Add(-time.Minute)
	resizes := []resizequeue.Resize{
		{Pod: pod("f not published", "2", "1Gi", 0, false), Allocated: pod("", "1", "1Gi", 0, false)},
		{Pod: pod("e later", "2", "1Gi", 0, false), Allocated: pod("", "1", "1Gi", 0, false), Since: recent},
		{Pod: pod("d longest", "2", "1Gi", 0, false), Allocated: pod("", "1", "1Gi", 0, false), Since: old},
		{Pod: pod("c guaranteed", "1", "2Gi", 0, true), Allocated: pod("", "1", "1Gi", 0, true), Since: recent},
		{Pod: pod("b important", "2", "1Gi", 7, false), Allocated: pod("", "1", "1Gi", 7, false), Since: recent},
		{Pod: pod("a less", "1", "1Gi", -1, false), Allocated: pod("", "2", "1Gi", -1, false), Since: recent},
	}
	var q resizequeue.Queue
	q.Observe(start(), nil)
	var order []string
	for range resizes {
		wake, _ := q.Next(start(), resizes)
		require.Len(t, wake, 1)
		order = append(order, wake[0])
		for i := range resizes {
			if string(resizes[i].Pod.UID) == wake[0] {
				resizes[i].Epoch = 1 // tried in this epoch
			}
		}
	}
	require.Equal(t, []string{"a less", "b important", "c guaranteed", "d longest", "e later", "f not published"}, order)
	wake, at := q.Next(start(), resizes)
	require.Empty(t, wake)
	require.Zero(t, at)
}

// A new epoch starts when a pod is removed or requests less of a resource, not when a pod is added or requests more.
func TestObserveStartsEpochAfterRelease(t *testing.T) {
	first := pod("a", "2", "2Gi", 0, false)
	for _, test := range []struct {
		name     string
		pods     []*corev1.Pod
		released bool
	}{
		{"same", []*corev1.Pod{first}, false},
		{"pod added", []*corev1.Pod{first, pod("b", "1", "1Gi", 0, false)}, false},
		{"more", []*corev1.Pod{pod("a", "3", "2Gi", 0, false)}, false},
		{"less CPU, more memory", []*corev1.Pod{pod("a", "1", "3Gi", 0, false)}, true},
		{"less memory", []*corev1.Pod{pod("a", "2", "1Gi", 0, false)}, true},
		{"pod replaced by another", []*corev1.Pod{pod("b", "2", "2Gi", 0, false)}, true},
		{"gone", nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var q resizequeue.Queue
			require.EqualValues(t, 1, q.Observe(start(), []*corev1.Pod{first}), "the first call of Observe releases nothing")
			epoch := q.Observe(start(), test.pods)
			require.Equal(t, test.released, epoch == 2)
			wake, _ := q.Next(start(), []resizequeue.Resize{{Pod: pod("z", "2", "1Gi", 0, false), Allocated: pod("z", "1", "1Gi", 0, false), Epoch: 1}})
			require.Equal(t, test.released, len(wake) == 1)
		})
	}
}

// A resized pod counts with the resources in its status while they are higher than its requests.
func TestObserveCountsStatusOfResizedPod(t *testing.T) {
	p := pod("a", "1", "1Gi", 0, false)
	has := pod("a", "2", "1Gi", 0, false).Spec.Containers[0].Resources
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Resources: &has, AllocatedResources: has.Requests}}
	var q resizequeue.Queue
	q.Observe(start(), []*corev1.Pod{p})
	done := p.DeepCopy()
	done.Status.ContainerStatuses[0].Resources.Requests = done.Spec.Containers[0].Resources.Requests
	done.Status.ContainerStatuses[0].AllocatedResources = done.Spec.Containers[0].Resources.Requests
	require.EqualValues(t, 2, q.Observe(start(), []*corev1.Pod{done}))
}

// A worker that hangs delays the remaining workers by one second in total.
func TestHungWorkersDelayRemainingWorkersByOneSecond(t *testing.T) {
	var resizes []resizequeue.Resize
	for _, name := range []string{"a", "b", "c"} {
		resizes = append(resizes, resizequeue.Resize{Pod: pod(name, "2", "1Gi", 0, false), Allocated: pod(name, "1", "1Gi", 0, false)})
	}
	var q resizequeue.Queue
	q.Observe(start(), nil)
	wake, at := q.Next(start(), resizes)
	require.Equal(t, []string{"a"}, wake)
	require.Equal(t, start().Add(time.Second), at)
	wake, _ = q.Next(at.Add(-1), resizes)
	require.Empty(t, wake)
	wake, at = q.Next(at, resizes)
	require.Equal(t, []string{"b", "c"}, wake)
	require.Zero(t, at)
	wake, _ = q.Next(start().Add(time.Hour), resizes)
	require.Empty(t, wake, "each resize is tried once in an epoch")
}

func TestResetStartsEpoch(t *testing.T) {
	var q resizequeue.Queue
	require.EqualValues(t, 1, q.Observe(start(), nil))
	q.Reset()
	require.EqualValues(t, 2, q.Observe(start(), nil))
}
