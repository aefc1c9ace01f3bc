// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// FieldPaths are the fields that a variable may refer to, beside single labels and annotations.
func FieldPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// VolumeFieldPaths are the fields that a file of a volume may show, beside single labels and annotations.
func VolumeFieldPaths() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// Subscript splits metadata.labels['key'] into its two parts.
func Subscript(path string) (name, key string, ok bool) {
	s, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(s, "['")
	return name, key, ok && name != ""
}

// ResourceFields are the requests and limits that a variable may refer to, beside those of huge pages.
func ResourceFields() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
}

// IsContainerResource reports whether a resource is one of those that Kubernetes itself gives to containers.
func IsContainerResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return IsHugePages(name)
}

// Quotient returns a quantity of a resource as a multiple of a divisor, rounded up: of CPU in millicores on both sides. A
// divisor that is not positive counts as 1. Source: convertResourceCPUToString in pkg/api/v1/resource/helpers.go.
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

// IsHugePages reports whether a resource is one of huge pages.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
