// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FieldPaths returns the pod fields that a fieldRef in an environment variable can refer to. A single label or annotation is
// permitted too, but not listed.
func FieldPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// VolumeFieldPaths returns the pod fields that a fieldRef in a downward API volume can refer to. A single label or
// annotation is permitted too, but not listed.
func VolumeFieldPaths() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// SplitSubscript splits a field path such as metadata.labels['app'] into the name metadata.labels and the key app. ok is
// false if the path does not end with a subscript.
func SplitSubscript(path string) (name, key string, ok bool) {
	s, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(s, "['")
	return name, key, ok && name != ""
}

// ResourceFields returns the requests and limits that a resourceFieldRef in an environment variable can refer to. Requests
// and limits of huge pages are permitted too, but not listed.
func ResourceFields() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
}

// IsContainerResource reports whether name is a container resource that Kubernetes itself provides: CPU, memory, ephemeral
// storage or huge pages. It returns false for the resources of device plugins.
func IsContainerResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return IsHugePages(name)
}

// Quotient returns the value of a resourceFieldRef: quantity divided by divisor, rounded up, as decimal text. For the
// resource cpu, it divides the numbers of millicores. A divisor of zero or less counts as 1. Source:
// convertResourceCPUToString in pkg/api/v1/resource/helpers.go.
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

// IsHugePages reports whether name is a huge page resource, such as hugepages-2Mi.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
