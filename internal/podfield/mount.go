// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// PropagationModes are the values of mountPropagation.
func PropagationModes() []corev1.MountPropagationMode {
	return []corev1.MountPropagationMode{
		corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone,
	}
}

// RecursiveModes are the values of recursiveReadOnly.
func RecursiveModes() []corev1.RecursiveReadOnlyMode {
	return []corev1.RecursiveReadOnlyMode{
		corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible,
	}
}

// Descending returns why a path does not stay below where it starts, or nothing.
func Descending(p string) []string {
	if path.IsAbs(p) {
		return []string{"must be a relative path"}
	}
	return NoBacksteps(p)
}

// NoBacksteps returns why a path may lead above where it starts, or nothing.
func NoBacksteps(p string) []string {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return []string{"must not contain '..'"}
	}
	return nil
}
