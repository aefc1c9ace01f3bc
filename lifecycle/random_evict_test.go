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

// Random operations: admission, evictions, volumes and devices.

// admit accepts most pods.
func (w *walker) admit(_ context.Context, pod *corev1.Pod, others []*corev1.Pod) error {
	w.checker.checkAdmit(pod, others)
	switch {
	case w.fails(10):
		return errors.New("fault: no decision")
	case w.fails(3):
		w.add("REJECTED %s", pod.UID)
		w.checker.recordTermination(pod)
		return &podstatus.Rejection{Reason: "OutOfpods", Message: "no room"}
	}
	return nil
}

// evict evicts a pod, concurrently with other operations.
func (w *walker) evict(pod *corev1.Pod) {
	e := podstatus.Eviction{Reason: "Evicted", Message: "low on memory", Grace: w.seconds(20), Temporary: w.chance(50)}
	uid, agent := string(pod.UID), w.agent
	w.add("EVICT %s %+v", uid, e)
	w.checker.recordTermination(pod)
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Duration(1+w.intn(300))*time.Second)
	agent.ended.Go(func() {
		defer cancel()
		err := agent.reconciler.Evict(ctx, uid, e)
		w.add("EVICTED %s %v", uid, err)
		if err == nil && !e.Temporary && !agent.dead.Load() {
			w.checker.requireDown(uid)
		}
	})
}

// recordTermination records that a pod must terminate regardless of its containers.
func (w *checker) recordTermination(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[string(pod.UID)].terminationExpected = true
}

// checkVolumeCall requires that volumes are not released while a container runs.
func (w *checker) checkVolumeCall(_ context.Context, c lifecycletest.Call) error {
	if c.Op == "Release" && w.t.Context().Err() == nil {
		w.requireDown(c.UID)
	}
	return nil
}

// checkDeviceCall requires that devices are not released while a container runs.
func (w *checker) checkDeviceCall(_ context.Context, c deviceCall) error {
	if c.op == "Release" && w.t.Context().Err() == nil {
		w.requireDown(c.uid)
	}
	return nil
}

// requireDown requires that no container of a pod runs, except containers that started late.
func (w *checker) requireDown(uid string) {
	snap := w.list()
	for i := range snap.Containers {
		c := &snap.Containers[i]
		assert.True(w.t, c.PodUID != uid || c.State != cri.ContainerRunning || w.startedLate(c.ID), "%s runs", c.ID)
	}
}

// checkAdmit requires that a pod has no running containers when Admit is called.
func (w *checker) checkAdmit(pod *corev1.Pod, others []*corev1.Pod) {
	snap := w.list()
	for i := range snap.Containers {
		c := &snap.Containers[i]
		exited := c.State != cri.ContainerRunning
		assert.True(w.t, c.PodUID != string(pod.UID) || exited || w.startedLate(c.ID), "%s runs while Admit is called for its pod", c.ID)
	}
	assert.False(w.t, slices.ContainsFunc(others, func(o *corev1.Pod) bool { return o.UID == pod.UID }), "Admit gets the pod itself as another pod")
}

// recordAgentStart records the start of an agent, which has no records of removed pods.
func (w *checker) recordAgentStart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		r.agentStarted = true
	}
}
