// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Changed reports whether the Node built must be sent to the API server at once, rather than with the next periodic report. It
// ignores heartbeat times and the order of conditions. It does not allocate for equal objects.
func Changed(previous, built *corev1.Node) bool {
	for _, label := range [...]string{corev1.LabelOSStable, corev1.LabelArchStable} {
		was, had := previous.Labels[label]
		if is, has := built.Labels[label]; was != is || had != has {
			return true
		}
	}
	return hasStatusChanged(&previous.Status, &built.Status)
}

// hasStatusChanged reports whether two node statuses differ. An empty list equals a missing list. Source:
// nodeStatusHasChanged in pkg/kubelet/kubelet_node_status.go.
func hasStatusChanged(a, b *corev1.NodeStatus) bool {
	return haveConditionsChanged(a.Conditions, b.Conditions) ||
		a.Phase != b.Phase ||
		a.DaemonEndpoints != b.DaemonEndpoints ||
		haveQuantitiesChanged(a.Capacity, b.Capacity) ||
		haveQuantitiesChanged(a.Allocatable, b.Allocatable) ||
		hasInfoChanged(&a.NodeInfo, &b.NodeInfo) ||
		!slices.Equal(a.Addresses, b.Addresses) ||
		!slices.EqualFunc(a.Images, b.Images, isSameImage) ||
		!slices.Equal(a.VolumesInUse, b.VolumesInUse) ||
		!slices.Equal(a.VolumesAttached, b.VolumesAttached) ||
		!slices.EqualFunc(a.RuntimeHandlers, b.RuntimeHandlers, isSameHandler) ||
		!slices.Equal(a.DeclaredFeatures, b.DeclaredFeatures) ||
		!isSamePointer(a.Features, b.Features, func(a, b *corev1.NodeFeatures) bool {
			return isSameValue(a.SupplementalGroupsPolicy, b.SupplementalGroupsPolicy)
		}) ||
		!isSamePointer(a.Config, b.Config, isSameConfig)
}

// haveConditionsChanged reports whether two lists of conditions differ. It ignores heartbeat times and the order.
func haveConditionsChanged(a, b []corev1.NodeCondition) bool {
	if slices.EqualFunc(a, b, isSameCondition) {
		return false
	}
	if len(a) != len(b) {
		return true
	}
	byType := func(a, b corev1.NodeCondition) int { return cmp.Compare(a.Type, b.Type) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortStableFunc(a, byType)
	slices.SortStableFunc(b, byType)
	return !slices.EqualFunc(a, b, isSameCondition)
}

func isSameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message &&
		a.LastTransitionTime.Time.Equal(b.LastTransitionTime.Time)
}

// haveQuantitiesChanged reports whether two resource lists differ in a name or an amount. 1Gi and 1024Mi are equal amounts.
func haveQuantitiesChanged(a, b corev1.ResourceList) bool {
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

func hasInfoChanged(a, b *corev1.NodeSystemInfo) bool {
	x, y := *a, *b
	x.Swap, y.Swap, x.RunningInUserNamespace, y.RunningInUserNamespace = nil, nil, nil, nil
	return x != y || !isSameValue(a.RunningInUserNamespace, b.RunningInUserNamespace) ||
		!isSamePointer(a.Swap, b.Swap, func(a, b *corev1.NodeSwapStatus) bool { return isSameValue(a.Capacity, b.Capacity) })
}

func isSameImage(a, b corev1.ContainerImage) bool {
	return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
}

func isSameHandler(a, b corev1.NodeRuntimeHandler) bool {
	return a.Name == b.Name && isSamePointer(a.Features, b.Features, func(a, b *corev1.NodeRuntimeHandlerFeatures) bool {
		return isSameValue(a.RecursiveReadOnlyMounts, b.RecursiveReadOnlyMounts) && isSameValue(a.UserNamespaces, b.UserNamespaces)
	})
}

func isSameConfig(a, b *corev1.NodeConfigStatus) bool {
	source := func(a, b *corev1.NodeConfigSource) bool { return isSameValue(a.ConfigMap, b.ConfigMap) }
	return a.Error == b.Error && isSamePointer(a.Assigned, b.Assigned, source) && isSamePointer(a.Active, b.Active, source) &&
		isSamePointer(a.LastKnownGood, b.LastKnownGood, source)
}

// isSamePointer reports whether both pointers are nil, or both values are equal according to equal(a, b).
func isSamePointer[T any](a, b *T, equal func(a, b *T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return equal(a, b)
}

func isSameValue[T comparable](a, b *T) bool {
	return isSamePointer(a, b, func(a, b *T) bool { return *a == *b })
}
