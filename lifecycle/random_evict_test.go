// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Admission, evictions and volumes of random operations.

// admit accepts most pods.
func (w *walker) admit(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	w.watch.admitted(pod, others)
	switch {
	case w.bad(10):
		return errors.New("fault: no decision")
	case w.bad(3):
		w.add("REJECTED %s", pod.UID)
		w.watch.ends(pod)
		return &podstatus.Rejection{Reason: "OutOfpods", Message: "no room"}
	}
	return nil
}

// evict evicts a pod, concurrently with other operations.
func (w *walker) evict(pod *corev1.Pod) {
	e := podstatus.Eviction{Reason: "Evicted", Message: "low on memory", Grace: w.seconds(20), Temporary: w.chance(50)}
	uid, agent := string(pod.UID), w.agent
	w.add("EVICT %s %+v", uid, e)
	w.watch.ends(pod)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Duration(1+w.intn(300))*time.Second)
	agent.ended.Go(func() {
		defer cancel()
		err := agent.reconciler.Evict(ctx, uid, e)
		w.add("EVICTED %s %v", uid, err)
		if err == nil && !e.Temporary && !agent.dead.Load() {
			w.watch.requireDown(uid)
		}
	})
}

// ends records a pod that must terminate regardless of its containers.
func (w *watch) ends(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[string(pod.UID)].ended = true
}

// volumeCall requires that volumes are not released while a container runs.
func (w *watch) volumeCall(_ context.Context, c lifecycletest.Call) error {
	if c.Op == "Release" && w.t.Context().Err() == nil {
		w.requireDown(c.UID)
	}
	return nil
}

// requireDown requires that no container of a pod runs, except ones that started late.
func (w *watch) requireDown(uid string) {
	snap := w.list()
	for i := range snap.Containers {
		c := &snap.Containers[i]
		assert.True(w.t, c.PodUID != uid || c.State != cri.ContainerRunning || w.isBelated(c.ID), "%s runs", c.ID)
	}
}

// admitted requires that a pod has no containers when Admit is called.
func (w *watch) admitted(pod *corev1.Pod, others []*corev1.Pod) {
	snap := w.list()
	for i := range snap.Containers {
		c := &snap.Containers[i]
		held := c.State != cri.ContainerRunning
		assert.True(w.t, c.PodUID != string(pod.UID) || held || w.isBelated(c.ID), "%s runs, and its pod is asked about", c.ID)
	}
	assert.False(w.t, slices.ContainsFunc(others, func(o *corev1.Pod) bool { return o.UID == pod.UID }), "beside itself")
}

// boots records the start of an agent, which does not know removed pods.
func (w *watch) boots() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		r.booted = true
	}
}

// waitsAfterUnseenEnd reports whether a container is waiting that the previous status has as terminated because the pod
// terminated before it had run.
func waitsAfterUnseenEnd(former *corev1.PodStatus, cs *corev1.ContainerStatus) bool {
	was := podstatus.FindContainer(slices.Concat(former.InitContainerStatuses, former.ContainerStatuses), cs.Name)
	return was != nil && was.State.Terminated != nil && was.State.Terminated.ContainerID == "" && cs.State.Waiting != nil
}

// goesBack reports whether the status of a container is that of the instance before the terminated one in the previous status.
func goesBack(former *corev1.PodStatus, cs *corev1.ContainerStatus) bool {
	was := podstatus.FindContainer(slices.Concat(former.InitContainerStatuses, former.ContainerStatuses), cs.Name)
	return was != nil && was.State.Terminated != nil && was.LastTerminationState.Terminated != nil && cs.ContainerID != "" && cs.ContainerID != was.ContainerID &&
		cs.ContainerID == was.LastTerminationState.Terminated.ContainerID
}
