// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import corev1 "k8s.io/api/core/v1"

// VolumesInUse returns the sorted names of the volumes that controllers must not detach, for the field volumesInUse of the Node
// status. If v is nil, because the agent has not created it yet, or volumes that were found are not adopted yet, known is false, and the field must
// not be reported.
func (v *Volumes) VolumesInUse() (names []corev1.UniqueVolumeName, known bool) {
	if v == nil || v.mayMissDevices() {
		return nil, false
	}
	for _, name := range v.namesInUse() {
		names = append(names, corev1.UniqueVolumeName(name))
	}
	return names, true
}
