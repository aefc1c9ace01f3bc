// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// groupAnnotation is the annotation of a PV with the supplemental group that its files require.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// MountOptions returns the mount options of pv, sorted and without duplicates. The options in the annotation
// volume.beta.kubernetes.io/mount-options replace the options in the spec.
func MountOptions(pv *corev1.PersistentVolume) []string {
	options := pv.Spec.MountOptions
	if text, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		options = strings.Split(text, ",")
	}
	options = slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	slices.Sort(options)
	return slices.Compact(options)
}

// SupplementalGroup returns the ID of the group that can access the files of pv. The ID is in an annotation of pv. ok is
// false if the annotation is missing or not a number.
func SupplementalGroup(pv *corev1.PersistentVolume) (gid int64, ok bool) {
	gid, err := strconv.ParseInt(pv.Annotations[groupAnnotation], 10, 64)
	return gid, err == nil
}

// IsReadWriteOncePod reports whether only one pod at a time may use pv, because ReadWriteOncePod is its only access mode.
func IsReadWriteOncePod(pv *corev1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == corev1.ReadWriteOncePod
}

// ErrInUse means that another pod uses a ReadWriteOncePod volume.
var ErrInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
