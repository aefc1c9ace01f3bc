// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumemanager gets this file by the overlay of package conformance. It exports the parser of an annotation.
package volumemanager

import v1 "k8s.io/api/core/v1"

// ConformanceExtraGroup calls getExtraSupplementalGID with annotation, the value of the GID annotation of a PersistentVolume. It
// returns the group and true if the group is valid and pod does not have it already.
func ConformanceExtraGroup(annotation string, pod *v1.Pod) (int64, bool) {
	return getExtraSupplementalGID(annotation, pod)
}
