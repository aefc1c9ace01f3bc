// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PropagationModes returns the valid values of mountPropagation in a volume mount.
func PropagationModes() []corev1.MountPropagationMode {
	return []corev1.MountPropagationMode{
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone,
	}
}

// RecursiveModes returns the valid values of recursiveReadOnly in a volume mount.
func RecursiveModes() []corev1.RecursiveReadOnlyMode {
	return []corev1.RecursiveReadOnlyMode{
		corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible,
	}
}

// CheckRelative checks a subPath, which is a path in a volume. It returns an error text if the path is absolute or has an
// element "..", and nil otherwise.
func CheckRelative(subPath string) []string {
	if path.IsAbs(subPath) {
		return []string{"must be a relative path"}
	}
	return CheckNoBacksteps(subPath)
}

// CheckNoBacksteps checks a subPath, which is a path in a volume. It returns an error text if the path has an element "..",
// and nil otherwise.
func CheckNoBacksteps(subPath string) []string {
	if slices.Contains(strings.Split(subPath, "/"), "..") {
		return []string{"must not contain '..'"}
	}
	return nil
}
