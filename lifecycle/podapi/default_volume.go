// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// defaultVolume sets the defaults of a volume. A volume without source becomes an emptyDir. Volume types that this version does
// not support get no defaults.
func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Image != nil {
		v.Image.PullPolicy = cmp.Or(v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.HostPath != nil && v.HostPath.Type == nil {
		v.HostPath.Type = new(corev1.HostPathUnset)
	}
	if v.ConfigMap != nil {
		defaultMode(&v.ConfigMap.DefaultMode)
	}
	if v.Secret != nil {
		defaultMode(&v.Secret.DefaultMode)
	}
	if v.DownwardAPI != nil {
		defaultMode(&v.DownwardAPI.DefaultMode)
		defaultDownwardFiles(v.DownwardAPI.Items)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		if mode := &v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode; *mode == nil {
			*mode = new(corev1.PersistentVolumeFilesystem)
		}
	}
	if v.Projected == nil {
		return
	}
	defaultMode(&v.Projected.DefaultMode)
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if s.DownwardAPI != nil {
			defaultDownwardFiles(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil && s.ServiceAccountToken.ExpirationSeconds == nil {
			s.ServiceAccountToken.ExpirationSeconds = new(int64(3600))
		}
	}
}

// defaultMode sets the default file mode of a volume.
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
