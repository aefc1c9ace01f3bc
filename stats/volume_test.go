// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/stats"
)

func TestVolumesOfReturnsLocalVolumes(t *testing.T) {
	pod := &corev1.Pod{}
	pod.UID = "uid1"
	add := func(name string, source corev1.VolumeSource) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	}
	add("disk", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	add("memory", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
	add("config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}})
	add("secret", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}})
	add("info", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}})
	add("all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}})
	add("host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}})
	add("..", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	at := "/root/pods/uid1/volumes/kubernetes.io~"
	assert.Equal(t, []stats.Volume{
		{Name: "disk", Path: at + "empty-dir/disk", Ephemeral: true},
		{Name: "memory", Path: at + "empty-dir/memory"},
		{Name: "config", Path: at + "configmap/config", Ephemeral: true},
		{Name: "secret", Path: at + "secret/secret"},
		{Name: "info", Path: at + "downward-api/info"},
		{Name: "all", Path: at + "projected/all"},
	}, stats.VolumesOf("/root", pod))
	pod.UID = "../x"
	assert.Empty(t, stats.VolumesOf("/root", pod))
}
