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

// groupAnnotation is of a volume whose files need a supplemental group.
const groupAnnotation = "pv.beta.kubernetes.io/gid"

// MountOptions returns the mount options of a volume, sorted and none twice. Those of the annotation win over those of the
// specification.
func MountOptions(pv *corev1.PersistentVolume) []string {
	options := pv.Spec.MountOptions
	if text, ok := pv.Annotations[corev1.MountOptionAnnotation]; ok {
		options = strings.Split(text, ",")
	}
	options = slices.DeleteFunc(slices.Clone(options), func(o string) bool { return o == "" })
	slices.Sort(options)
	return slices.Compact(options)
}

// Group returns the supplemental group that a volume asks for; false: none, or one that is no number.
func Group(pv *corev1.PersistentVolume) (gid int64, ok bool) {
	gid, err := strconv.ParseInt(pv.Annotations[groupAnnotation], 10, 64)
	return gid, err == nil
}

// OncePerPod reports whether one pod at a time may use a volume: ReadWriteOncePod is all that it allows.
func OncePerPod(pv *corev1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == corev1.ReadWriteOncePod
}

// ErrInUse is why a pod cannot have a volume that is for one pod at a time.
var ErrInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
