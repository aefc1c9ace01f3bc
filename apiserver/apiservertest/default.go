// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// setDefaults sets the API server's defaults in the fields that a node, a controller or a scheduler reads. Source: pkg/apis/core/v1/defaults.go.
func setDefaults(obj Object) {
	filesystem := corev1.PersistentVolumeFilesystem
	switch obj := obj.(type) {
	case *corev1.Pod:
		podapi.Default(obj)
	case *corev1.Namespace:
		obj.Status.Phase = cmp.Or(obj.Status.Phase, corev1.NamespaceActive)
		if obj.Name != "" {
			if obj.Labels == nil {
				obj.Labels = map[string]string{}
			}
			obj.Labels[corev1.LabelMetadataName] = obj.Name
		}
	case *corev1.Secret:
		obj.Type = cmp.Or(obj.Type, corev1.SecretTypeOpaque)
	case *corev1.PersistentVolumeClaim:
		if obj.Spec.VolumeMode == nil {
			obj.Spec.VolumeMode = &filesystem
		}
		obj.Status.Phase = cmp.Or(obj.Status.Phase, corev1.ClaimPending)
	case *corev1.PersistentVolume:
		if obj.Spec.VolumeMode == nil {
			obj.Spec.VolumeMode = &filesystem
		}
		obj.Spec.PersistentVolumeReclaimPolicy = cmp.Or(obj.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		obj.Status.Phase = cmp.Or(obj.Status.Phase, corev1.VolumePending)
	case *corev1.Service:
		obj.Spec.Type = cmp.Or(obj.Spec.Type, corev1.ServiceTypeClusterIP)
		for i := range obj.Spec.Ports {
			obj.Spec.Ports[i].Protocol = cmp.Or(obj.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	default:
		setWorkloadDefaults(obj)
	}
}
