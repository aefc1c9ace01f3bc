// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Container statuses for the tables below.
var (
	running   = corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	creating  = corev1.ContainerStatus{State: waiting}
	waiting   = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
	exitedOK  = corev1.ContainerStatus{State: ended(0)}
	exitedBad = corev1.ContainerStatus{State: ended(1)}
	backOff   = corev1.ContainerStatus{State: waiting, LastTerminationState: ended(1)}
	backOffOK = corev1.ContainerStatus{State: waiting, LastTerminationState: ended(0)}
	nothing   = corev1.ContainerStatus{}
)

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

func TestPhase(t *testing.T) {
	const (
		always    = corev1.RestartPolicyAlways
		onFailure = corev1.RestartPolicyOnFailure
		never     = corev1.RestartPolicyNever
	)
	type statuses = []corev1.ContainerStatus
	for _, tt := range []struct {
		name     string
		policy   corev1.RestartPolicy
		has      statuses
		terminal bool
		want     corev1.PodPhase
	}{
		{"one runs, one without a state", always, statuses{running, nothing}, false, corev1.PodPending},
		{"one runs, one is waiting", always, statuses{running, creating}, false, corev1.PodPending},
		{"all run", always, statuses{running, running}, false, corev1.PodRunning},
		{"one runs, one in back-off", always, statuses{running, backOff}, false, corev1.PodRunning},
		{"Never: one runs, one failed", never, statuses{running, exitedBad}, false, corev1.PodRunning},
		{"Always: succeeded, will be restarted", always, statuses{exitedOK}, false, corev1.PodRunning},
		{"Always: in back-off", always, statuses{backOff}, false, corev1.PodRunning},
		{"Never: all succeeded", never, statuses{exitedOK, exitedOK}, false, corev1.PodSucceeded},
		{"Never: one failed", never, statuses{exitedOK, exitedBad}, false, corev1.PodFailed},
		{"OnFailure: all succeeded", onFailure, statuses{exitedOK}, false, corev1.PodSucceeded},
		{"OnFailure: one failed, will be restarted", onFailure, statuses{exitedOK, exitedBad}, false, corev1.PodRunning},
		{"OnFailure: one in back-off", onFailure, statuses{exitedOK, backOff}, false, corev1.PodRunning},
		{"OnFailure: back-off after success", onFailure, statuses{backOffOK}, false, corev1.PodFailed},
		{"deleted: all succeeded", always, statuses{exitedOK}, true, corev1.PodSucceeded},
		{"deleted: one failed", always, statuses{exitedOK, exitedBad}, true, corev1.PodFailed},
		{"deleted: one succeeded, one runs", always, statuses{exitedOK, running}, true, corev1.PodRunning},
		{"deleted: waiting, never started", always, statuses{creating}, true, corev1.PodPending},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tt.policy}}
			var has []corev1.ContainerStatus
			for i, st := range tt.has {
				st.Name = string(rune('a' + i))
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: st.Name})
				has = append(has, st)
			}
			require.Equal(t, tt.want, podstatus.Phase(pod, has, podstatus.PhaseInput{Deleted: tt.terminal}))
		})
	}
}

func TestPhaseFollowsContainerRestartPolicies(t *testing.T) {
	never := corev1.ContainerRestartPolicyNever
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways,
		Containers:    []corev1.Container{{Name: "a", RestartPolicy: &never}},
	}}
	st := exitedBad
	st.Name = "a"
	require.Equal(t, corev1.PodFailed, podstatus.Phase(pod, []corev1.ContainerStatus{st}, podstatus.PhaseInput{}))
	pod.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1},
		},
	}}
	require.Equal(t, corev1.PodRunning, podstatus.Phase(pod, []corev1.ContainerStatus{st}, podstatus.PhaseInput{}))
}

// A deleted static pod keeps phase Running if its restart policy would restart a container.
func TestPhaseOfDeletedStaticPod(t *testing.T) {
	for policy, want := range map[corev1.RestartPolicy]corev1.PodPhase{
		corev1.RestartPolicyAlways: corev1.PodRunning, corev1.RestartPolicyOnFailure: corev1.PodRunning, corev1.RestartPolicyNever: corev1.PodFailed,
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main"}}}}
		pod.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		exited := exitedBad
		exited.Name = "main"
		require.Equal(t, want, podstatus.Phase(pod, []corev1.ContainerStatus{exited}, podstatus.PhaseInput{Deleted: true, Initialized: true}), policy)
	}
}
