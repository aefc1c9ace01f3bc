// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Default fills in what the API server fills in when a pod is created, for the fields that this package reads
// (pkg/apis/core/v1/defaults.go). It is idempotent. The requests and limits of the pod as a whole are left as they are.
func Default(pod *corev1.Pod) {
	spec := &pod.Spec
	spec.RestartPolicy = cmp.Or(spec.RestartPolicy, corev1.RestartPolicyAlways)
	spec.DNSPolicy = cmp.Or(spec.DNSPolicy, corev1.DNSClusterFirst)
	spec.SchedulerName = cmp.Or(spec.SchedulerName, corev1.DefaultSchedulerName)
	spec.ServiceAccountName = cmp.Or(spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = new(corev1.DefaultEnableServiceLinks)
	}
	switch g := spec.TerminationGracePeriodSeconds; {
	case g == nil:
		spec.TerminationGracePeriodSeconds = new(int64(corev1.DefaultTerminationGracePeriodSeconds))
	case *g < 0:
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = corev1.PullIfNotPresent
		if imageTag(c.Image) == "latest" {
			c.ImagePullPolicy = corev1.PullAlways
		}
	}
	c.TerminationMessagePath = cmp.Or(c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	c.TerminationMessagePolicy = cmp.Or(c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		p := &c.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if hostNetwork && p.HostPort == 0 {
			p.HostPort = p.ContainerPort
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			e.ValueFrom.FieldRef.APIVersion = cmp.Or(e.ValueFrom.FieldRef.APIVersion, "v1")
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	defaultRequests(&c.Resources)
}

// defaultRequests makes a request of each limit that has none.
func defaultRequests(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	requests := maps.Clone(r.Limits)
	maps.Copy(requests, r.Requests)
	r.Requests = requests
}

// roundUp makes whole thousandths of all quantities.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// imageTag returns the tag of an image reference: "latest" where it has neither tag nor digest, "" where it has only
// a digest or is empty.
func imageTag(image string) string {
	name, _, digested := strings.Cut(image, "@")
	// A colon before the last slash belongs to the port of the registry.
	base := name[strings.LastIndexByte(name, '/')+1:]
	_, tag, tagged := strings.Cut(base, ":")
	if !tagged && !digested && image != "" {
		return "latest"
	}
	return tag
}
