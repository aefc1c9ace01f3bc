// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// The status of an evicted or rejected pod changes phase and reason only when no container of the pod runs.
func TestOfEvictedOrRejectedPod(t *testing.T) {
	up := cri.Pod{Sandboxes: []cri.Sandbox{{ID: "s"}}, Containers: []cri.Container{{ID: "c", SandboxID: "s", Name: "main", State: cri.ContainerRunning}}}
	down := cri.Pod{Sandboxes: []cri.Sandbox{{ID: "s", State: cri.SandboxNotReady}}, Containers: []cri.Container{
		{ID: "c", SandboxID: "s", Name: "main", State: cri.ContainerExited, ExitCode: 143},
	}}
	eviction := func(hold bool) *podstatus.Eviction {
		return &podstatus.Eviction{Reason: "Evicted", Message: "low", Temporary: hold, Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"},
		}}
	}
	running := &corev1.PodStatus{Phase: corev1.PodRunning}
	tests := map[string]struct {
		observed  cri.Pod
		in        podstatus.Input
		policy    corev1.RestartPolicy
		want      string // phase and reason
		disrupted bool
	}{
		"evicted, container runs":                   {up, podstatus.Input{Eviction: eviction(false), Previous: running}, "Always", "Running ", false},
		"evicted, container exited":                 {down, podstatus.Input{Eviction: eviction(false), Previous: running}, "Always", "Failed Evicted", true},
		"temporarily evicted, container runs":       {up, podstatus.Input{Eviction: eviction(true), Previous: running}, "Always", "Running ", false},
		"temporarily evicted, container exited":     {down, podstatus.Input{Eviction: eviction(true), Previous: running}, "Always", "Pending Evicted", false},
		"temporarily evicted, restart policy Never": {down, podstatus.Input{Eviction: eviction(true), Previous: running}, "Never", "Failed Evicted", true},
		"evicted after success":                     {down, podstatus.Input{Eviction: eviction(false), Previous: &corev1.PodStatus{Phase: corev1.PodSucceeded}}, "Never", "Succeeded ", false},
		"eviction ended, reason removed":            {down, podstatus.Input{LastEvictionReason: "Evicted", Previous: &corev1.PodStatus{Phase: corev1.PodRunning, Reason: "Evicted"}}, "Always", "Running ", false},
		"eviction ended, other reason kept":         {up, podstatus.Input{LastEvictionReason: "Evicted", Previous: &corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost"}}, "Always", "Running NodeLost", false},
		"evicted after its deadline":                {down, podstatus.Input{Eviction: eviction(false), Previous: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded"}}, "Always", "Failed DeadlineExceeded", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pod := podtest.Pod("a")
			pod.Spec.RestartPolicy = tt.policy
			tt.in.Now = time.Unix(1000, 0)
			st := podstatus.Of(pod, tt.observed, tt.in)
			shown := podstatus.DeferTerminalPhase(pod, tt.observed, st, tt.in.Previous.Phase)
			assert.Equal(t, tt.want, string(shown.Phase)+" "+shown.Reason)
			target := podstatus.FindCondition(shown.Conditions, corev1.DisruptionTarget)
			assert.Equal(t, tt.disrupted, target != nil)
			if target != nil {
				assert.Equal(t, metav1.Unix(1000, 0).UTC(), target.LastTransitionTime.UTC())
			}
		})
	}
}

// The condition of an eviction replaces one of its type, with the time of the change.
func TestOfEvictedPodHasConditionOfEviction(t *testing.T) {
	pod := podtest.Pod("a")
	before := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", LastTransitionTime: metav1.Unix(1, 0)}
	pod.Status.Conditions = []corev1.PodCondition{before}
	st := podstatus.Of(pod, cri.Pod{}, podstatus.Input{Now: time.Unix(1000, 0), Eviction: &podstatus.Eviction{
		Reason: "Evicted", Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}},
	}})
	assert.Equal(t, "True TerminationByKubelet", podtest.ConditionOf(st, corev1.DisruptionTarget))
	assert.Equal(t, int64(1), podstatus.FindCondition(st.Conditions, corev1.DisruptionTarget).LastTransitionTime.Unix())
}

func TestRejection(t *testing.T) {
	r := &podstatus.Rejection{Reason: "OutOfcpu", Message: "too little"}
	assert.EqualError(t, r, "OutOfcpu: too little")
	pod := podtest.Pod("a")
	pod.Generation = 3
	assert.Equal(t, corev1.PodStatus{
		ObservedGeneration: 3, Phase: corev1.PodFailed, QOSClass: corev1.PodQOSBestEffort,
		Reason: "OutOfcpu", Message: "Pod was rejected: too little",
	}, r.Status(pod), "status of a rejected pod has no conditions, as with the kubelet")
	assert.Equal(t, "UnexpectedAdmissionError", (&podstatus.Rejection{}).StatusReason())
}
