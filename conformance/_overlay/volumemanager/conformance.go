// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package volumemanager gets this file by way of the overlay: it opens what the package makes of an annotation.
package volumemanager

import v1 "k8s.io/api/core/v1"

// ConformanceExtraGroup is the supplemental group that a volume adds to those of a pod, and whether there is one.
func ConformanceExtraGroup(annotation string, pod *v1.Pod) (int64, bool) {
	return getExtraSupplementalGID(annotation, pod)
}
