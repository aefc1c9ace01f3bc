// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package lacking refuses what a pod asks for and the agent that is to run it was not given the parts for. What no agent can do is
// package podapi's to refuse.
package lacking

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Parts are what an agent has.
type Parts struct {
	Probes         bool // somebody runs them
	Images         bool // the runtime has them
	Volumes        bool // other than images
	HostsFiles     bool // they are made, and can be mounted
	UserNamespaces bool // of pods
	Admission      bool // somebody looks at whether the node has the labels that a pod wants
}

// Fields returns an error for each field of the pod that asks for something else.
func (p Parts) Fields(pod *corev1.Pod) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if !p.Probes {
		errs = append(errs, probed(pod.Spec.InitContainers, spec.Child("initContainers"))...)
		errs = append(errs, probed(pod.Spec.Containers, spec.Child("containers"))...)
	}
	for i := range pod.Spec.Volumes {
		switch v, path := &pod.Spec.Volumes[i], spec.Child("volumes").Index(i); {
		case v.Image != nil && !p.Images:
			errs = append(errs, field.Forbidden(path.Child("image"), "this agent's runtime has no images"))
		case v.Image == nil && !p.Volumes:
			errs = append(errs, field.Forbidden(path, "this agent has no volumes but images"))
		}
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

func requiresNode(a *corev1.Affinity) bool {
	return a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// probed returns an error for each probe.
func probed(list []corev1.Container, path *field.Path) (errs field.ErrorList) {
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
