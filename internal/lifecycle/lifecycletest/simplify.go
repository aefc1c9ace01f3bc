// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycletest

import corev1 "k8s.io/api/core/v1"

// SimplifyPod returns a copy of pod without the fields that an in-memory runtime does not support: volumes, devices,
// resource claims, probes and hooks. Tests of schedulers and controllers can then run any pod.
func SimplifyPod(pod *corev1.Pod) *corev1.Pod {
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
