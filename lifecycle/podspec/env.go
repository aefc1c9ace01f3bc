// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// variables is an environment in the making: the container's own variables in the order in which the pod first names
// them, then those that the node adds.
type variables struct {
	names  []string
	values map[string]string
	node   []cri.EnvVar
}

// lookup finds a variable for [Expand].
func (v *variables) lookup(name string) (string, bool) {
	if value, ok := v.values[name]; ok {
		return value, true
	}
	for _, e := range v.node {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

func (v *variables) list() []cri.EnvVar {
	var list []cri.EnvVar
	for _, name := range v.names {
		list = append(list, cri.EnvVar{Name: name, Value: v.values[name]})
	}
	for _, e := range v.node {
		if _, ok := v.values[e.Name]; !ok {
			list = append(list, e)
		}
	}
	return list
}

// environment evaluates a container's variables from first to last, each with those before it (kubelet_pods.go,
// makeEnvironmentVariables).
func environment(pod *corev1.Pod, c *corev1.Container, path *field.Path, l Launch, o Options) (*variables, error) {
	v := &variables{values: make(map[string]string, len(c.Env)), node: l.Env}
	for i, e := range c.Env {
		value := Expand(e.Value, v.lookup)
		if e.Value == "" && e.ValueFrom != nil {
			var err error
			if value, err = valueFrom(pod, c, e.ValueFrom, path.Index(i).Child("valueFrom"), l, o); err != nil {
				return nil, err
			}
		}
		v.set(e.Name, value)
	}
	return v, nil
}

func valueFrom(pod *corev1.Pod, c *corev1.Container, s *corev1.EnvVarSource, path *field.Path, l Launch, o Options) (string, error) {
	switch {
	case s.FieldRef != nil:
		return fieldValue(pod, s.FieldRef.FieldPath, path.Child("fieldRef", "fieldPath"), l, o)
	case s.ResourceFieldRef != nil:
		return resourceValue(pod, c, s.ResourceFieldRef, path.Child("resourceFieldRef"), o)
	default:
		return "", unsupported(path, "variables from config maps, secrets and files")
	}
}

func fieldValue(pod *corev1.Pod, name string, path *field.Path, l Launch, o Options) (string, error) {
	if m, key, ok := subscript(name); ok {
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
		if len(o.HostIPs) == 0 {
			return "", field.Invalid(path, name, "the address of the node is not known")
		}
		return addresses(o.HostIPs, name == "status.hostIP"), nil
	case "status.podIP", "status.podIPs":
		return addresses(podAddresses(pod, l, o), name == "status.podIP"), nil
	default:
		return "", field.NotSupported(path, name, fieldPaths())
	}
}

// fieldPaths are the fields that a variable may refer to, beside single labels and annotations.
func fieldPaths() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
}

// subscript splits metadata.labels['key'] into its two parts.
func subscript(path string) (name, key string, ok bool) {
	s, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	name, key, ok = strings.Cut(s, "['")
	return name, key, ok && name != ""
}

// podAddresses picks the addresses that a pod is told: the first of the node's preferred family, then the first of
// the other.
func podAddresses(pod *corev1.Pod, l Launch, o Options) []netip.Addr {
	if pod.Spec.HostNetwork && len(l.PodIPs) == 0 {
		return o.HostIPs
	}
	want6 := len(o.HostIPs) > 0 && o.HostIPs[0].Is6()
	var picked []netip.Addr
	for _, is6 := range []bool{want6, !want6} {
		for _, s := range l.PodIPs {
			if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() == is6 {
				picked = append(picked, ip)
				break
			}
		}
	}
	return picked
}

func addresses(ips []netip.Addr, onlyFirst bool) string {
	if onlyFirst && len(ips) > 1 {
		ips = ips[:1]
	}
	var s []string
	for _, ip := range ips {
		s = append(s, ip.String())
	}
	return strings.Join(s, ",")
}

// resourceValue returns a request or limit of a container as a multiple of the divisor, rounded up.
func resourceValue(pod *corev1.Pod, c *corev1.Container, ref *corev1.ResourceFieldSelector, path *field.Path, o Options) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other := containerNamed(pod, ref.ContainerName)
		if other == nil {
			return "", field.NotFound(path.Child("containerName"), ref.ContainerName)
		}
		c = other
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	if !isContainerResource(resourceName) || kind != "limits" && kind != "requests" {
		return "", field.NotSupported(path.Child("resource"), ref.Resource, resourceFields())
	}
	quantity := c.Resources.Requests[resourceName]
	if kind == "limits" {
		quantity = limitOrAllocatable(pod, c, resourceName, o)
	}
	divisor := ref.Divisor
	if divisor.Sign() <= 0 {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if resourceName == corev1.ResourceCPU {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	quotient := value / by
	if value%by > 0 {
		quotient++
	}
	return strconv.FormatInt(quotient, 10), nil
}

func resourceFields() []string {
	return []string{
		"limits.cpu", "limits.ephemeral-storage", "limits.memory",
		"requests.cpu", "requests.ephemeral-storage", "requests.memory",
	}
}

// limitOrAllocatable returns a container's limit, else the pod's, else what the node has to give
// (kubelet_resources.go, defaultPodLimitsForDownwardAPI). Huge pages are never overcommitted and have no fallback.
func limitOrAllocatable(pod *corev1.Pod, c *corev1.Container, name corev1.ResourceName, o Options) resource.Quantity {
	limit := c.Resources.Limits[name]
	if !limit.IsZero() || isHugePages(name) {
		return limit
	}
	allocatable, known := o.Allocatable[name]
	if r := pod.Spec.Resources; known && r != nil && name != corev1.ResourceEphemeralStorage {
		if limit := r.Limits[name]; !limit.IsZero() {
			return limit
		}
	}
	return allocatable
}

func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	return nil
}
