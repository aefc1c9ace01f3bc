// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// defaultVolume sets the API server's defaults in a volume source. An empty source becomes an emptyDir.
func defaultVolume(source *corev1.VolumeSource) {
	if *source == (corev1.VolumeSource{}) {
		source.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if source.Image != nil {
		source.Image.PullPolicy = cmp.Or(source.Image.PullPolicy, pullPolicy(source.Image.Reference))
	}
	if source.HostPath != nil && source.HostPath.Type == nil {
		source.HostPath.Type = new(corev1.HostPathUnset)
	}
	if source.ConfigMap != nil {
		defaultMode(&source.ConfigMap.DefaultMode)
	}
	if source.Secret != nil {
		defaultMode(&source.Secret.DefaultMode)
	}
	if source.DownwardAPI != nil {
		defaultMode(&source.DownwardAPI.DefaultMode)
		defaultDownwardFiles(source.DownwardAPI.Items)
	}
	if source.Ephemeral != nil && source.Ephemeral.VolumeClaimTemplate != nil {
		if mode := &source.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode; *mode == nil {
			*mode = new(corev1.PersistentVolumeFilesystem)
		}
	}
	if source.Projected == nil {
		return
	}
	defaultMode(&source.Projected.DefaultMode)
	for i := range source.Projected.Sources {
		s := &source.Projected.Sources[i]
		if s.DownwardAPI != nil {
			defaultDownwardFiles(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil && s.ServiceAccountToken.ExpirationSeconds == nil {
			s.ServiceAccountToken.ExpirationSeconds = new(int64(3600))
		}
	}
}

// defaultMode sets the file mode of a volume to 0644 if it is nil.
func defaultMode(mode **int32) {
	if *mode == nil {
		*mode = new(corev1.ConfigMapVolumeSourceDefaultMode) // equal for all volume types
	}
}

func defaultDownwardFiles(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if r := items[i].FieldRef; r != nil {
			r.APIVersion = cmp.Or(r.APIVersion, "v1")
		}
	}
}
