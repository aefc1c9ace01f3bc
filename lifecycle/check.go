// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// checkPod returns why a pod cannot be run, or nil.
func (r *Reconciler) checkPod(pod *corev1.Pod) error {
	errs := podapi.Validate(pod)
	if pod.UID == "" {
		uid := field.NewPath("metadata", "uid")
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == uid.String() })
		errs = append(errs, field.Required(uid, "package lifecycle/source makes pods that can be run, also of those that are built in code: source.Static"))
	}
	if len(errs) == 0 {
		errs = append(podapi.Unsupported(pod), fielderr.Short(r.lacking(pod))...)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, errs.ToAggregate())
}

// lacking returns an error for each field that asks for something that the options of this agent leave out or forbid.
func (r *Reconciler) lacking(pod *corev1.Pod) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if r.opts.Probes == nil {
		errs = append(errs, probed(pod.Spec.InitContainers, spec.Child("initContainers"))...)
		errs = append(errs, probed(pod.Spec.Containers, spec.Child("containers"))...)
	}
	for i := range pod.Spec.Volumes {
		switch v, path := &pod.Spec.Volumes[i], spec.Child("volumes").Index(i); {
		case v.Image != nil && r.opts.Images == nil:
			errs = append(errs, field.Forbidden(path.Child("image"), "this agent's runtime has no images"))
		case v.Image == nil && r.opts.Volumes == nil:
			errs = append(errs, field.Forbidden(path, "this agent has no volumes but images"))
		}
	}
	if r.opts.Volumes != nil {
		errs = append(errs, r.opts.Volumes.Check(pod)...)
	}
	if (r.opts.Dirs.Pods == "" || r.opts.NoMounts) && len(pod.Spec.HostAliases) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("hostAliases"), "this agent makes no hosts files"))
	}
	errs = append(errs, podapi.ForbiddenSysctls(pod, r.opts.Sysctls)...)
	if own := pod.Spec.HostUsers; r.opts.Spec.UserNamespace == nil && own != nil && !*own {
		errs = append(errs, field.Forbidden(spec.Child("hostUsers"), "this agent has no user namespaces"))
	}
	return errs
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
