// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podenv

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/podip"
)

// fieldValue returns the value of a pod field, such as "status.podIP", for a variable. path is the field path of the reference
// in the pod, for errors.
func fieldValue(pod *corev1.Pod, name string, path *field.Path, sources *Sources) (string, error) {
	if m, key, ok := podfield.SplitSubscript(name); ok {
		switch m {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch name {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(sources.HostIPs) == 0 {
			return "", field.Invalid(path, name, "the node address is unknown")
		}
		return joinAddresses(sources.HostIPs, name == "status.hostIP"), nil
	case "status.podIP", "status.podIPs":
		return joinAddresses(podip.Addresses(pod.Spec.HostNetwork, sources.PodIPs, nil, sources.HostIPs), name == "status.podIP"), nil
	default:
		return "", field.NotSupported(path, name, podfield.FieldPaths())
	}
}

// joinAddresses returns ips separated by commas. If onlyFirst is true, it returns only the first address.
func joinAddresses(ips []netip.Addr, onlyFirst bool) string {
	if onlyFirst && len(ips) > 1 {
		ips = ips[:1]
	}
	var s []string
	for _, ip := range ips {
		s = append(s, ip.String())
	}
	return strings.Join(s, ",")
}

// resourceValue returns the request or limit selected by ref, divided by its divisor and rounded up. path is the field path of
// ref in the pod, for errors.
func resourceValue(pod *corev1.Pod, container *corev1.Container, ref *corev1.ResourceFieldSelector, path *field.Path, allocatable corev1.ResourceList) (string, error) {
	source, defaulted := container, true
	if ref.ContainerName != "" {
		named := containers.Find(&pod.Spec, ref.ContainerName)
		if named.Container == nil || named.Kind == containers.Ephemeral {
			return "", field.NotFound(path.Child("containerName"), ref.ContainerName)
		}
		// Limits of a named init container have no default.
		source, defaulted = named.Container, named.Kind == containers.Regular
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	if !podfield.IsContainerResource(resourceName) || kind != "limits" && kind != "requests" {
		return "", field.NotSupported(path.Child("resource"), ref.Resource, podfield.ResourceFields())
	}
	quantity := source.Resources.Requests[resourceName]
	if kind == "limits" {
		quantity = source.Resources.Limits[resourceName]
		if defaulted {
			// A missing limit is the allocatable amount of the node.
			quantity = limitOrAllocatable(pod, source, resourceName, allocatable)
		}
	}
	return podfield.Quotient(resourceName, quantity, ref.Divisor), nil
}

// limitOrAllocatable returns the limit of the container, else of the pod, else the allocatable amount of the node. Source:
// defaultPodLimitsForDownwardAPI in pkg/kubelet/kubelet_resources.go.
func limitOrAllocatable(pod *corev1.Pod, container *corev1.Container, name corev1.ResourceName, nodeAllocatable corev1.ResourceList) resource.Quantity {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || podfield.IsHugePages(name) {
		// Huge pages cannot be overcommitted.
		return limit
	}
	allocatable, known := nodeAllocatable[name]
	if r := pod.Spec.Resources; known && r != nil && name != corev1.ResourceEphemeralStorage {
		if limit := r.Limits[name]; !limit.IsZero() {
			return limit
		}
	}
	return allocatable
}
