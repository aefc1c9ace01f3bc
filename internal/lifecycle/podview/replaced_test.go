// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podview_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
)

// A container that is replaced by a successor is shown as before, until the successor runs or has exited.
func TestHideReplacement(t *testing.T) {
	instance := func(id string, attempt uint32, state cri.ContainerState) cri.Container {
		return cri.Container{ID: id, Name: id[:1], Attempt: attempt, State: state}
	}
	before, other := instance("a1", 1, cri.ContainerRunning), instance("b0", 0, cri.ContainerExited)
	old := instance("a0", 0, cri.ContainerExited)
	for name, test := range map[string]struct{ observed, want []cri.Container }{
		"still running":        {[]cri.Container{other, before}, []cri.Container{other, before}},
		"exited":               {[]cri.Container{other, instance("a1", 1, cri.ContainerExited)}, []cri.Container{other, before}},
		"removed":              {[]cri.Container{other}, []cri.Container{other, before}},
		"unknown state":        {[]cri.Container{old, instance("a1", 1, cri.ContainerUnknown)}, []cri.Container{old, before}},
		"successor created":    {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerCreated)}, []cri.Container{before}},
		"successor running":    {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerRunning)}, nil},
		"successor has exited": {[]cri.Container{instance("a1", 1, cri.ContainerExited), instance("a2", 2, cri.ContainerExited)}, nil},
	} {
		if test.want == nil {
			test.want = test.observed
		}
		got := podview.HideReplacement(cri.Pod{Containers: test.observed}, []cri.Container{before})
		assert.ElementsMatch(t, test.want, got.Containers, name)
		assert.Equal(t, test.observed, podview.HideReplacement(cri.Pod{Containers: test.observed}, nil).Containers, name)
	}

	created, anew := instance("a1", 1, cri.ContainerCreated), cri.Container{ID: "a1-again", Name: "a", Attempt: 1}
	observed := cri.Pod{Containers: []cri.Container{old}}
	assert.Equal(t, []cri.Container{old, created}, podview.HideReplacement(observed, []cri.Container{created}).Containers, "container removed before its start")
	for state, want := range map[cri.ContainerState]cri.Container{cri.ContainerCreated: created, cri.ContainerRunning: {ID: "a1-again", Name: "a", Attempt: 1, State: cri.ContainerRunning}} {
		anew.State = state
		observed.Containers = []cri.Container{old, anew}
		assert.Equal(t, []cri.Container{old, want}, podview.HideReplacement(observed, []cri.Container{created}).Containers, "created anew")
	}
}

// A successor is hidden if its predecessor was published as terminated for good, unless the container may be restarted.
func TestHideLateSuccessors(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "a"}}}}
	exited := cri.Container{ID: "a0", Name: "a", SandboxID: "s", State: cri.ContainerExited}
	late := cri.Container{ID: "a1", Name: "a", SandboxID: "s", Attempt: 1, State: cri.ContainerCreated}
	terminated := corev1.ContainerStatus{Name: "a", ContainerID: "containerd://a0", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	for name, test := range map[string]struct {
		change func(pod *corev1.Pod, exited, late *cri.Container, st *corev1.ContainerStatus)
		hidden bool
	}{
		"too late": {func(*corev1.Pod, *cri.Container, *cri.Container, *corev1.ContainerStatus) {}, true},
		"restart by policy": {func(pod *corev1.Pod, _, _ *cri.Container, _ *corev1.ContainerStatus) {
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		}, false},
		"restart by exit code": {func(_ *corev1.Pod, exited, _ *cri.Container, _ *corev1.ContainerStatus) { exited.ExitCode = 1 }, false},
		"predecessor published as running": {func(_ *corev1.Pod, _, _ *cri.Container, st *corev1.ContainerStatus) {
			st.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		}, false},
		"published before": {func(_ *corev1.Pod, _, _ *cri.Container, st *corev1.ContainerStatus) {
			st.ContainerID = "containerd://b"
		}, false},
		"successor in a new sandbox": {func(_ *corev1.Pod, _, late *cri.Container, _ *corev1.ContainerStatus) { late.SandboxID = "s2" }, false},
		"running": {func(_ *corev1.Pod, _, late *cri.Container, _ *corev1.ContainerStatus) {
			late.State = cri.ContainerRunning
		}, false},
	} {
		p, e, l, st := pod.DeepCopy(), exited, late, terminated
		test.change(p, &e, &l, &st)
		observed := cri.Pod{Containers: []cri.Container{e, l}}
		want := observed.Containers
		if test.hidden {
			want = want[:1]
		}
		got := podview.HideLateSuccessors(p, observed, &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{st}})
		assert.Equal(t, want, got.Containers, name)
		assert.Len(t, observed.Containers, 2, name)
	}
}

// A successor of a completed init container is hidden whatever the restart policy of the pod.
func TestHideLateSuccessorsOfInitContainer(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	terminated := corev1.ContainerStatus{Name: "a", ContainerID: "containerd://a0", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
	for name, test := range map[string]struct {
		policy *corev1.ContainerRestartPolicy
		exited cri.Container
		hidden bool
	}{
		"completed":           {nil, cri.Container{}, true},
		"failed":              {nil, cri.Container{ExitCode: 1}, false},
		"out of memory":       {nil, cri.Container{Reason: "OOMKilled"}, false},
		"sidecar has exited":  {&always, cri.Container{}, false},
		"exit not published":  {nil, cri.Container{ID: "b0"}, false},
		"other restart count": {nil, cri.Container{Attempt: 2}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, InitContainers: []corev1.Container{{Name: "a", RestartPolicy: test.policy}}}}
		exited := test.exited
		exited.Name, exited.SandboxID, exited.State = "a", "s", cri.ContainerExited
		if exited.ID == "" {
			exited.ID = "a0"
		}
		observed := cri.Pod{Containers: []cri.Container{exited, {ID: "a1", Name: "a", SandboxID: "s", Attempt: 1, State: cri.ContainerCreated}}}
		got := podview.HideLateSuccessors(pod, observed, &corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{terminated}})
		assert.Equal(t, test.hidden, len(got.Containers) == 1, name)
	}
}
