// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that waits for its turn is encoded once: again only for another version, another status, or after its request.
func TestPlanUpdateEncodesStatusOnce(t *testing.T) {
	now := time.Now()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
	running, failed := &corev1.PodStatus{Phase: corev1.PodRunning}, &corev1.PodStatus{Phase: corev1.PodFailed}
	var tracked trackedPod
	plan := func(pod *corev1.Pod, status *corev1.PodStatus) []byte {
		update, err := tracked.planUpdate(pod, status, now)
		require.NoError(t, err)
		require.NotEmpty(t, update.Patch)
		return update.Patch
	}

	first := plan(pod, running)
	require.Same(t, &first[0], &plan(pod, running)[0])

	require.Contains(t, string(plan(pod, failed)), "Failed")
	newer := plan(pod.DeepCopy(), failed)
	require.NotSame(t, &newer[0], &plan(pod, failed)[0])

	last := plan(pod, failed)
	tracked.recordResult(&request{verb: verbPatch}, nil, errors.New("no connection"), 0, now)
	require.NotSame(t, &last[0], &plan(pod, failed)[0])
}
