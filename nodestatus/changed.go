// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Changed reports whether a Node object that [Build] has made of another is worth a request at once, and not only when the next report
// is due: the status is another one, heartbeats and the order of conditions apart, or a label that every node has was mended. It
// allocates nothing for two that are equal.
func Changed(previous, built *corev1.Node) bool {
	for _, label := range [...]string{corev1.LabelOSStable, corev1.LabelArchStable} {
		was, had := previous.Labels[label]
		if is, has := built.Labels[label]; was != is || had != has {
			return true
		}
	}
	return statusChanged(&previous.Status, &built.Status)
}

// statusChanged compares every field, as the kubelet's nodeStatusHasChanged does; what is empty and what is missing are the same.
func statusChanged(a, b *corev1.NodeStatus) bool {
	return conditionsChanged(a.Conditions, b.Conditions) ||
		a.Phase != b.Phase ||
		a.DaemonEndpoints != b.DaemonEndpoints ||
		quantitiesChanged(a.Capacity, b.Capacity) ||
		quantitiesChanged(a.Allocatable, b.Allocatable) ||
		infoChanged(&a.NodeInfo, &b.NodeInfo) ||
		!slices.Equal(a.Addresses, b.Addresses) ||
		!slices.EqualFunc(a.Images, b.Images, sameImage) ||
		!slices.Equal(a.VolumesInUse, b.VolumesInUse) ||
		!slices.Equal(a.VolumesAttached, b.VolumesAttached) ||
		!slices.EqualFunc(a.RuntimeHandlers, b.RuntimeHandlers, sameHandler) ||
		!slices.Equal(a.DeclaredFeatures, b.DeclaredFeatures) ||
		!samePointer(a.Features, b.Features, func(a, b *corev1.NodeFeatures) bool {
			return sameValue(a.SupplementalGroupsPolicy, b.SupplementalGroupsPolicy)
		}) ||
		!samePointer(a.Config, b.Config, sameConfig)
}

// conditionsChanged reports whether conditions differ in more than heartbeats and order.
func conditionsChanged(a, b []corev1.NodeCondition) bool {
	if slices.EqualFunc(a, b, sameCondition) {
		return false
	}
	if len(a) != len(b) {
		return true
	}
	byType := func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortStableFunc(a, byType)
	slices.SortStableFunc(b, byType)
	return !slices.EqualFunc(a, b, sameCondition)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Time.Equal(b.LastTransitionTime.Time)
}

// quantitiesChanged compares amounts, not how they are written.
func quantitiesChanged(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return true
	}
	for name, q := range a {
		if other, found := b[name]; !found || q.Cmp(other) != 0 {
			return true
		}
	}
	return false
}

func infoChanged(a, b *corev1.NodeSystemInfo) bool {
	x, y := *a, *b
	x.Swap, y.Swap, x.RunningInUserNamespace, y.RunningInUserNamespace = nil, nil, nil, nil
	return x != y || !sameValue(a.RunningInUserNamespace, b.RunningInUserNamespace) ||
		!samePointer(a.Swap, b.Swap, func(a, b *corev1.NodeSwapStatus) bool { return sameValue(a.Capacity, b.Capacity) })
}

func sameImage(a, b corev1.ContainerImage) bool {
	return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
}

func sameHandler(a, b corev1.NodeRuntimeHandler) bool {
	return a.Name == b.Name && samePointer(a.Features, b.Features, func(a, b *corev1.NodeRuntimeHandlerFeatures) bool {
		return sameValue(a.RecursiveReadOnlyMounts, b.RecursiveReadOnlyMounts) && sameValue(a.UserNamespaces, b.UserNamespaces)
	})
}

func sameConfig(a, b *corev1.NodeConfigStatus) bool {
	source := func(a, b *corev1.NodeConfigSource) bool { return sameValue(a.ConfigMap, b.ConfigMap) }
	return a.Error == b.Error && samePointer(a.Assigned, b.Assigned, source) && samePointer(a.Active, b.Active, source) &&
		samePointer(a.LastKnownGood, b.LastKnownGood, source)
}

// samePointer reports whether both are missing, or there and the same.
func samePointer[T any](a, b *T, same func(a, b *T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return same(a, b)
}

func sameValue[T comparable](a, b *T) bool {
	return samePointer(a, b, func(a, b *T) bool { return *a == *b })
}
