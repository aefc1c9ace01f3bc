// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycletest

import corev1 "k8s.io/api/core/v1"

// Bare returns a copy of a pod without what a runtime in memory has no use for: volumes, devices and resource claims, probes,
// because nothing answers them, and hooks. So any pod of a cluster runs in one, for a test of who schedules or controls it.
func Bare(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Volumes, pod.Spec.ResourceClaims = nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			c.VolumeMounts, c.VolumeDevices, c.Resources.Claims = nil, nil, nil
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		pod.Spec.EphemeralContainers[i].VolumeMounts, pod.Spec.EphemeralContainers[i].VolumeDevices = nil, nil
	}
	return pod
}
