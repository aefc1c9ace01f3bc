// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podstatus_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestSummaryCountsReadyContainersAndRestarts(t *testing.T) {
	require.Equal(t, "0/0 restarts=0 Evicted", podstatus.Summary(&corev1.PodStatus{Reason: "Evicted"}))
	require.Equal(t, "1/3 restarts=5 Error exit 1", podstatus.Summary(&corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Ready: true, RestartCount: 1},
		{RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
		{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", Message: "exit 1"}}},
	}}))
}
