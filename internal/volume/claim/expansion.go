// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// expansionNotRequiredAnnotation marks claims that are never expanded on nodes.
const expansionNotRequiredAnnotation = "volume.kubernetes.io/node-expansion-not-required"

// Expansion has two sizes of a volume in bytes: OldSize on this node, and NewSize, the requested size.
type Expansion struct{ OldSize, NewSize int64 }

// PlanExpansion returns the current and the requested size of a volume. due is true if this node must expand it now, after
// the part of the controller (KEP-1790). known is the current size in bytes; zero means the capacity in the claim status.
func PlanExpansion(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known int64) (expansion Expansion, due bool) {
	capacity := pvc.Status.Capacity[corev1.ResourceStorage]
	wanted := pv.Spec.Capacity[corev1.ResourceStorage]
	expansion = Expansion{OldSize: known, NewSize: wanted.Value()}
	if known == 0 {
		expansion.OldSize = capacity.Value()
	}
	if expansion.NewSize <= expansion.OldSize {
		return expansion, false
	}
	status, allocated := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage], pvc.Status.AllocatedResources
	if status == "" && allocated == nil { // the controller does not track expansions
		return expansion, true
	}
	if size, ok := allocated[corev1.ResourceStorage]; ok {
		expansion.NewSize = size.Value()
	}
	return expansion, expansion.NewSize > expansion.OldSize && (status == corev1.PersistentVolumeClaimNodeResizePending ||
		status == corev1.PersistentVolumeClaimNodeResizeInProgress || expandsOnEveryNode(pvc, expansion))
}

// expandsOnEveryNode reports whether each node that uses the volume must expand it, as for a ReadWriteMany claim.
func expandsOnEveryNode(pvc *corev1.PersistentVolumeClaim, expansion Expansion) bool {
	capacity := pvc.Status.Capacity[corev1.ResourceStorage]
	_, not := pvc.Annotations[expansionNotRequiredAnnotation]
	// The annotation turns this off. The claim status must already have the new size.
	return !not && capacity.Value() >= expansion.NewSize && pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == "" &&
		slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany)
}
