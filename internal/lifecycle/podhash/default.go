// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podhash

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Default sets the defaults of the API server that podapi.Default omits because no node reads them: those of some volume
// sources, claim templates and of the status. A second call changes nothing. Source: SetObjectDefaults_Pod in
// pkg/apis/core/v1/zz_generated.defaults.go.
func Default(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		defaultVolume(&pod.Spec.Volumes[i].VolumeSource)
	}
	defaultStatus(&pod.Status)
}

func defaultVolume(source *corev1.VolumeSource) {
	if s := source.ISCSI; s != nil {
		s.ISCSIInterface = cmp.Or(s.ISCSIInterface, "default")
	}
	if s := source.RBD; s != nil {
		s.RBDPool = cmp.Or(s.RBDPool, "rbd")
		s.RadosUser = cmp.Or(s.RadosUser, "admin")
		s.Keyring = cmp.Or(s.Keyring, "/etc/ceph/keyring")
	}
	if s := source.AzureDisk; s != nil {
		s.CachingMode = cmp.Or(s.CachingMode, new(corev1.AzureDataDiskCachingReadWrite))
		s.FSType = cmp.Or(s.FSType, new("ext4"))
		s.ReadOnly = cmp.Or(s.ReadOnly, new(false))
		s.Kind = cmp.Or(s.Kind, new(corev1.AzureSharedBlobDisk))
	}
	if s := source.ScaleIO; s != nil {
		s.StorageMode = cmp.Or(s.StorageMode, "ThinProvisioned")
		s.FSType = cmp.Or(s.FSType, "xfs")
	}
	if s := source.Ephemeral; s != nil && s.VolumeClaimTemplate != nil {
		roundUp(s.VolumeClaimTemplate.Spec.Resources.Limits)
		roundUp(s.VolumeClaimTemplate.Spec.Resources.Requests)
	}
}

// defaultStatus sets the defaults of a status that was written into a manifest. podIP has priority over podIPs.
func defaultStatus(status *corev1.PodStatus) {
	switch {
	case status.PodIP == "" && len(status.PodIPs) > 0:
		status.PodIP = status.PodIPs[0].IP
	case status.PodIP != "" && (len(status.PodIPs) == 0 || status.PodIPs[0].IP != status.PodIP):
		status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			roundUp(list[i].AllocatedResources)
			defaultRequirements(list[i].Resources)
		}
	}
	roundUp(status.AllocatedResources)
	defaultRequirements(status.Resources)
}

func defaultRequirements(requirements *corev1.ResourceRequirements) {
	if requirements != nil {
		roundUp(requirements.Limits)
		roundUp(requirements.Requests)
	}
}

// roundUp rounds each quantity in the list up to a multiple of 1/1000, the precision of the API.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}
