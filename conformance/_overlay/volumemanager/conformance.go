// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumemanager gets this file by the overlay of package conformance. It exports the parser of an annotation.
package volumemanager

import v1 "k8s.io/api/core/v1"

// ConformanceExtraGroup returns the group in the GID annotation of a PersistentVolume. It also reports whether the group is
// valid and new to pod. It calls getExtraSupplementalGID.
func ConformanceExtraGroup(annotation string, pod *v1.Pod) (int64, bool) {
	return getExtraSupplementalGID(annotation, pod)
}
