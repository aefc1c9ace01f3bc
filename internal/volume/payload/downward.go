// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package payload

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// addDownwardAPI adds a file for each item of a downwardAPI source. The file contains a field of the pod or a resource of a
// container.
func (b *builder) addDownwardAPI(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		item := &items[i]
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldValue(b.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceValue(&b.pod.Spec, item.ResourceFieldRef, b.in.Allocatable)
		}
		if err != nil {
			b.addError("%v", err)
			continue
		}
		b.addFile(item.Path, []byte(value), item.Mode)
	}
}

// fieldValue returns the value of a pod field, such as metadata.labels, as the content of a file. Source: pkg/fieldpath.
func fieldValue(pod *corev1.Pod, name string) (string, error) {
	if m, key, ok := podfield.SplitSubscript(name); ok {
		switch m {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("fieldPath %.256q does not support subscript", name)
	}
	switch name {
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	default:
		return "", fmt.Errorf("unsupported fieldPath: %.256q", name)
	}
}

// formatMap returns a line key="value" for each entry of m, sorted by key. The last line has no newline.
func formatMap(m map[string]string) string {
	var out []byte
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if len(out) > 0 {
			out = append(out, '\n')
		}
		out = append(append(out, key...), '=')
		out = strconv.AppendQuote(out, m[key])
	}
	return string(out)
}

// resourceValue returns the request or limit selected by ref, divided by its divisor and rounded up.
func resourceValue(spec *corev1.PodSpec, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	var c *corev1.Container
	for each := range containers.NotEphemeral(spec) {
		if each.Name == ref.ContainerName {
			c = each
		}
	}
	if c == nil {
		return "", fmt.Errorf("container %.256q not found", ref.ContainerName)
	}
	kind, rest, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(rest)
	if !podfield.IsContainerResource(name) || kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("unsupported container resource : %.256q", ref.Resource)
	}
	quantity := c.Resources.Requests[name]
	if kind == "limits" {
		quantity = c.Resources.Limits[name]
		if quantity.IsZero() && !podfield.IsHugePages(name) {
			// Huge pages have no such default, because they cannot be overcommitted.
			quantity = allocatable[name]
		}
	}
	return podfield.Quotient(name, quantity, ref.Divisor), nil
}
