// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lacking rejects pods that need an optional feature which this agent is not configured with. Features that no agent
// supports are rejected by package podapi.
package lacking

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Features are the optional features of an agent.
type Features struct {
	Probes         bool // containers can be probed
	Images         bool // the runtime uses images
	Volumes        bool // volumes other than image volumes
	Devices        bool // devices of extended resources
	HostsFiles     bool // hosts files are written and mounted
	UserNamespaces bool // pods can have a user namespace
	Admission      bool // an admission check compares the node labels with nodeSelector and node affinity
}

// CheckPod returns an error for each field of pod that requires a feature which the agent does not have. p contains the
// features of the agent.
func (p Features) CheckPod(pod *corev1.Pod) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if !p.Probes {
		errs = append(errs, checkProbes(pod.Spec.InitContainers, spec.Child("initContainers"))...)
		errs = append(errs, checkProbes(pod.Spec.Containers, spec.Child("containers"))...)
	}
	for i := range pod.Spec.Volumes {
		switch v, path := &pod.Spec.Volumes[i], spec.Child("volumes").Index(i); {
		case v.Image != nil && !p.Images:
			errs = append(errs, field.Forbidden(path.Child("image"), "this agent's runtime has no images"))
		case v.Image == nil && !p.Volumes:
			errs = append(errs, field.Forbidden(path, "this agent has no volumes but images"))
		}
	}
	if !p.Devices {
		errs = append(errs, checkDevices(pod.Spec.InitContainers, spec.Child("initContainers"))...)
		errs = append(errs, checkDevices(pod.Spec.Containers, spec.Child("containers"))...)
	}
	if !p.HostsFiles && len(pod.Spec.HostAliases) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("hostAliases"), "this agent makes no hosts files"))
	}
	if own := pod.Spec.HostUsers; !p.UserNamespaces && own != nil && !*own {
		errs = append(errs, field.Forbidden(spec.Child("hostUsers"), "this agent has no user namespaces"))
	}
	if !p.Admission {
		if len(pod.Spec.NodeSelector) > 0 {
			errs = append(errs, field.Forbidden(spec.Child("nodeSelector"), noAdmission))
		}
		if requiresNode(pod.Spec.Affinity) {
			errs = append(errs, field.Forbidden(spec.Child("affinity"), noAdmission))
		}
	}
	return errs
}

const noAdmission = "this agent admits no pods by the labels of its node"

func requiresNode(affinity *corev1.Affinity) bool {
	return affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// checkProbes returns an error for each probe of the containers in list. path is the field path of list.
func checkProbes(list []corev1.Container, path *field.Path) (errs field.ErrorList) {
	refuse := func(p *corev1.Probe, path *field.Path) {
		if p != nil {
			errs = append(errs, field.Forbidden(path, "this agent runs no probes"))
		}
	}
	for i := range list {
		refuse(list[i].StartupProbe, path.Index(i).Child("startupProbe"))
		refuse(list[i].ReadinessProbe, path.Index(i).Child("readinessProbe"))
		refuse(list[i].LivenessProbe, path.Index(i).Child("livenessProbe"))
	}
	return errs
}

// checkDevices returns an error for each extended resource that the containers in list limit. path is the field path of list.
// An ephemeral container has no resources.
func checkDevices(list []corev1.Container, path *field.Path) (errs field.ErrorList) {
	for i := range list {
		limits := path.Index(i).Child("resources", "limits")
		for _, name := range slices.Sorted(maps.Keys(list[i].Resources.Limits)) {
			if strings.Contains(string(name), "/") {
				errs = append(errs, field.Forbidden(limits.Key(string(name)), "this agent has no device plugins"))
			}
		}
	}
	return errs
}
