// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrimForRecord returns copies of pvc and pv with only the fields that a node needs to use and expand the volume. It omits
// labels, owners, node affinity and most annotations, so that users cannot make the record of a pod too large.
func TrimForRecord(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	c, v := pvc.DeepCopy(), pv.DeepCopy()
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta: c.TypeMeta, ObjectMeta: trimMetadata(c.ObjectMeta, expansionNotRequiredAnnotation),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: c.Spec.AccessModes, Resources: c.Spec.Resources, VolumeName: c.Spec.VolumeName,
			StorageClassName: c.Spec.StorageClassName, VolumeMode: c.Spec.VolumeMode,
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: c.Status.Phase, AccessModes: c.Status.AccessModes, Capacity: c.Status.Capacity,
			AllocatedResources: c.Status.AllocatedResources, AllocatedResourceStatuses: c.Status.AllocatedResourceStatuses,
		},
	}
	volume := &corev1.PersistentVolume{
		TypeMeta: v.TypeMeta, ObjectMeta: trimMetadata(v.ObjectMeta, corev1.MountOptionAnnotation, groupAnnotation), Spec: v.Spec,
		Status: corev1.PersistentVolumeStatus{Phase: v.Status.Phase},
	}
	volume.Spec.NodeAffinity = nil
	return claim, volume
}

// trimMetadata returns the namespace, name, UID and resource version of meta, and only the annotations with the given names.
func trimMetadata(meta metav1.ObjectMeta, annotations ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
	for _, name := range annotations {
		if text, ok := meta.Annotations[name]; ok {
			if kept.Annotations == nil {
				kept.Annotations = map[string]string{}
			}
			kept.Annotations[name] = text
		}
	}
	return kept
}
