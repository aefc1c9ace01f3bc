// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/lifecycle/lacking"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// checkPod returns a *podCheckError if the pod is invalid or uses a feature that this agent does not support.
func (r *Reconciler) checkPod(pod *corev1.Pod) error {
	errs := podapi.Validate(pod)
	invalid := len(errs) > 0
	if pod.UID == "" {
		uid := field.NewPath("metadata", "uid")
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Field == uid.String() })
		errs = append(errs, field.Required(uid, "package lifecycle/source sets it; use source.Static for a pod that is built in code"))
	}
	if len(errs) == 0 {
		errs = append(podapi.Unsupported(pod), fielderr.Short(r.missingOptions(pod))...)
	}
	if len(errs) == 0 {
		return nil
	}
	return &podCheckError{
		err: fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, errs.ToAggregate()), rejection: r.newRejection(pod, errs, invalid),
	}
}

// missingOptions returns an error for each field of the pod that this agent does not support with its [Options].
func (r *Reconciler) missingOptions(pod *corev1.Pod) (errs field.ErrorList) {
	errs = lacking.Features{
		Probes:         r.opts.Probes != nil,
		Images:         r.opts.Images != nil,
		Volumes:        r.opts.Volumes != nil,
		Devices:        r.opts.Devices != nil,
		HostsFiles:     r.opts.Dirs.Pods != "" && !r.opts.NoMounts,
		UserNamespaces: r.opts.Spec.UserNamespace != nil,
		Admission:      r.opts.Admit != nil && r.opts.AdmitChecksNodeAffinity,
	}.CheckPod(pod)
	if c, ok := r.opts.Probes.(ProbeChecker); ok {
		errs = append(errs, c.Check(pod)...)
	}
	if r.opts.Volumes != nil {
		errs = append(errs, r.opts.Volumes.Check(pod)...)
	}
	if r.opts.AppArmorError != nil && podapi.UsesAppArmor(pod) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "securityContext", "appArmorProfile"), appArmorMessage(r.opts.AppArmorError)))
	}
	return append(errs, podapi.ForbiddenSysctls(pod, r.opts.AllowedUnsafeSysctls)...)
}
