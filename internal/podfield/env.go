// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FieldPaths returns the pod fields that an environment variable may refer to, in addition to single labels and annotations.
func FieldPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// VolumeFieldPaths returns the pod fields that a file of a downward API volume may show, in addition to single labels and
// annotations.
func VolumeFieldPaths() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// SplitSubscript splits a field path such as metadata.labels['key'] into its name and key. ok is false if path has no subscript.
func SplitSubscript(path string) (name, key string, ok bool) {
	s, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(s, "['")
	return name, key, ok && name != ""
}

// ResourceFields returns the requests and limits that an environment variable may refer to, in addition to those of huge pages.
func ResourceFields() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
}

// IsContainerResource reports whether Kubernetes itself defines the resource for containers: CPU, memory, ephemeral storage or
// huge pages.
func IsContainerResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return IsHugePages(name)
}

// Quotient returns quantity divided by divisor, rounded up to an integer; CPU is compared in millicores. A divisor of zero or
// less counts as 1. Source: convertResourceCPUToString in pkg/api/v1/resource/helpers.go.
func Quotient(name corev1.ResourceName, quantity, divisor resource.Quantity) string {
	if divisor.Sign() <= 0 {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	quotient := value / by
	if value%by > 0 {
		quotient++
	}
	return strconv.FormatInt(quotient, 10)
}

// IsHugePages reports whether the resource is one of huge pages, such as hugepages-2Mi.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
