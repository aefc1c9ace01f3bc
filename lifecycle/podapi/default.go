// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// Default sets unset fields of the pod to the defaults of the API server. It covers the fields that a node reads. Pod-level
// requests and limits have no defaults. A second call changes nothing. Source: pkg/apis/core/v1/defaults.go.
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
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for c := range podfield.Containers(spec) {
		defaultContainer(c, spec.HostNetwork)
	}
}

func defaultContainer(container podfield.Container, hostNetwork bool) {
	container.ImagePullPolicy = cmp.Or(container.ImagePullPolicy, pullPolicy(container.Image))
	container.TerminationMessagePath = cmp.Or(container.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	container.TerminationMessagePolicy = cmp.Or(container.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range container.Ports {
		p := &container.Ports[i]
		p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
		if hostNetwork && container.Kind != containers.Ephemeral && p.HostPort == 0 {
			p.HostPort = p.ContainerPort
		}
	}
	for _, e := range container.Env {
		from := optional.OrZero(e.ValueFrom)
		if r := from.FieldRef; r != nil {
			r.APIVersion = cmp.Or(r.APIVersion, "v1")
		}
		if r := from.FileKeyRef; r != nil && r.Optional == nil {
			r.Optional = new(bool)
		}
	}
	roundUp(container.Resources.Limits)
	roundUp(container.Resources.Requests)
	if container.Kind != containers.Ephemeral {
		defaultRequests(&container.Resources)
	}
	for _, p := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
		if p != nil {
			defaultProbe(p)
		}
	}
	if container.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{container.Lifecycle.PostStart, container.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTPGet(hook.HTTPGet)
			}
		}
	}
}

func defaultProbe(probe *corev1.Probe) {
	probe.TimeoutSeconds = cmp.Or(probe.TimeoutSeconds, 1)
	probe.PeriodSeconds = cmp.Or(probe.PeriodSeconds, 10)
	probe.SuccessThreshold = cmp.Or(probe.SuccessThreshold, 1)
	probe.FailureThreshold = cmp.Or(probe.FailureThreshold, 3)
	defaultHTTPGet(probe.HTTPGet)
	if probe.GRPC != nil && probe.GRPC.Service == nil {
		probe.GRPC.Service = new(string)
	}
}

func defaultHTTPGet(action *corev1.HTTPGetAction) {
	if action != nil {
		action.Path = cmp.Or(action.Path, "/")
		action.Scheme = cmp.Or(action.Scheme, corev1.URISchemeHTTP)
	}
}

// defaultRequests sets each missing request to the limit of the same resource.
func defaultRequests(resources *corev1.ResourceRequirements) {
	if resources.Limits == nil {
		return
	}
	requests := maps.Clone(resources.Limits)
	maps.Copy(requests, resources.Requests)
	resources.Requests = requests
}

// roundUp rounds each quantity in the list up to a multiple of 1/1000, the precision of the API.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

// pullPolicy returns the default pull policy of an image: Always if its tag is latest or missing, else IfNotPresent.
func pullPolicy(image string) corev1.PullPolicy {
	if reference.IsLatest(image) {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
