// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// notRequired is an annotation of claims that never grow on nodes.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// Growth is how much a volume has to grow on the node, in bytes.
type Growth struct{ Old, New int64 }

// Grow returns how much a volume has to grow on this node, and whether it may: where the controller of the claim reports how far an
// expansion is, the node waits for its turn (KEP-1790). known is the size that the volume has on this node; zero: that of the claim.
func Grow(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, known int64) (g Growth, due bool) {
	capacity := pvc.Status.Capacity[corev1.ResourceStorage]
	wanted := pv.Spec.Capacity[corev1.ResourceStorage]
	g = Growth{Old: known, New: wanted.Value()}
	if known == 0 {
		g.Old = capacity.Value()
	}
	if g.New <= g.Old {
		return g, false
	}
	status, allocated := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage], pvc.Status.AllocatedResources
	if status == "" && allocated == nil { // a controller that does not report it
		return g, true
	}
	if size, ok := allocated[corev1.ResourceStorage]; ok {
		g.New = size.Value()
	}
	return g, g.New > g.Old && (status == corev1.PersistentVolumeClaimNodeResizePending ||
		status == corev1.PersistentVolumeClaimNodeResizeInProgress || everyNode(pvc, g))
}

// everyNode reports whether a claim that has grown elsewhere has to grow on this node, too.
func everyNode(pvc *corev1.PersistentVolumeClaim, g Growth) bool {
	capacity := pvc.Status.Capacity[corev1.ResourceStorage]
	_, not := pvc.Annotations[notRequired]
	return !not && capacity.Value() >= g.New && pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == "" &&
		slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany)
}
