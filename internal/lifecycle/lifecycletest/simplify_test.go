// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycletest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/lifecycletest"
)

// The result has only fields that a Reconciler without volumes, probes and devices accepts. The input is unchanged.
func TestSimplifyPodRemovesUnsupportedFields(t *testing.T) {
	probe, mounts := &corev1.Probe{}, []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	keep := corev1.Container{Name: "main", Image: "any", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}
	full := keep
	full.VolumeMounts, full.VolumeDevices = mounts, []corev1.VolumeDevice{{Name: "disk", DevicePath: "/dev/disk"}}
	full.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	full.LivenessProbe, full.ReadinessProbe, full.StartupProbe, full.Lifecycle = probe, probe, probe, &corev1.Lifecycle{}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		NodeName: "n", Volumes: []corev1.Volume{{Name: "data"}}, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu"}},
		InitContainers: []corev1.Container{full}, Containers: []corev1.Container{full},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", VolumeMounts: mounts}}},
	}}
	given := pod.DeepCopy()
	require.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		NodeName: "n", InitContainers: []corev1.Container{keep}, Containers: []corev1.Container{keep},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}, lifecycletest.SimplifyPod(pod))
	require.Equal(t, given, pod)
}
