// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Only terminated pods that are not deleted are limited. The newest ones stay, in their order.
func TestLimitTerminatedKeepsNewest(t *testing.T) {
	pod := func(name string, age time.Duration, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	deleted := pod("c", 5*time.Hour, corev1.PodFailed)
	deleted.DeletionTimestamp = &metav1.Time{Time: time.Unix(1e9, 0)}
	mirror := pod("f", 5*time.Hour, corev1.PodSucceeded)
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	pods := []*corev1.Pod{
		pod("a", time.Hour, corev1.PodSucceeded), pod("b", 4*time.Hour, corev1.PodRunning), deleted,
		pod("d", 3*time.Hour, corev1.PodFailed), pod("e", 2*time.Hour, corev1.PodSucceeded), mirror,
	}
	for most, want := range []string{"bcf", "abcf", "abcef", "abcdef"} {
		var names string
		for _, p := range limitTerminated(append([]*corev1.Pod{}, pods...), most) {
			names += p.Name
		}
		require.Equal(t, want, names, most)
	}
}
