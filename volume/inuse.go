// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import corev1 "k8s.io/api/core/v1"

// VolumesInUse returns the sorted names of the volumes that no controller may detach from the node, as the kubelet reports them in the status of
// the Node. They are unknown if v is nil: the volumes are not created yet.
func (v *Volumes) VolumesInUse() (names []corev1.UniqueVolumeName, known bool) {
	if v == nil {
		return nil, false
	}
	for _, name := range v.inUse() {
		names = append(names, corev1.UniqueVolumeName(name))
	}
	return names, true
}
