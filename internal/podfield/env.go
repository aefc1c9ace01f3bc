// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// IsHugePages reports whether a resource is one of huge pages.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}
