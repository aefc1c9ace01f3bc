// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// ImmutableError names the fields of a pod that have changed and may not, while the pod keeps its UID.
type ImmutableError struct {
	Pod    cri.PodIdentity // as it was before the change
	Fields field.ErrorList // at least one, and at most ten
}

// Error names the pod and the fields.
func (e *ImmutableError) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		texts[i] = f.Error()
	}
	return fmt.Sprintf("pod %s/%s: UID %s: %s", e.Pod.Namespace, e.Pod.Name, e.Pod.UID, strings.Join(texts, "; "))
}

// Unwrap returns the fields.
func (e *ImmutableError) Unwrap() []error {
	errs := make([]error, len(e.Fields))
	for i, f := range e.Fields {
		errs[i] = f
	}
	return errs
}

// maxImmutable is how many fields an error names.
const maxImmutable = 10

// ValidateUpdate returns an [*ImmutableError] where a pod cannot become another one of its UID, else nil. Both have been
// through [Default], and neither is written to.
//
// May change, as in an API server: the images of containers and init containers; CPU and memory of containers, init
// containers and the pod; tolerations and ephemeral containers, which may be added; activeDeadlineSeconds, which may be
// set and get less; labels, annotations, and other metadata, but for names; that the pod is deleted; the status. Source:
// ValidatePodUpdate, ValidatePodResize and ValidatePodEphemeralContainersUpdate in
// pkg/apis/core/validation/validation.go.
func ValidateUpdate(old, pod *corev1.Pod) error {
	wanted := pod.Spec.DeepCopy()
	errs := keepEphemeral(old.Spec.EphemeralContainers, wanted)
	permit(&old.Spec, wanted)
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	paths := differences(reflect.ValueOf(&old.Spec).Elem(), reflect.ValueOf(wanted).Elem(), spec)
	for name, differs := range map[string]bool{
		"name": old.Name != pod.Name, "namespace": old.Namespace != pod.Namespace,
		"deletionTimestamp": old.DeletionTimestamp != nil && pod.DeletionTimestamp == nil,
	} {
		if differs {
			paths = append(paths, meta.Child(name))
		}
	}
	for _, path := range paths {
		errs = append(errs, field.Forbidden(path, "may not change while the pod keeps its UID"))
	}
	if len(errs) == 0 {
		return nil
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return &ImmutableError{
		Pod:    cri.PodIdentity{UID: string(old.UID), Name: old.Name, Namespace: old.Namespace},
		Fields: errs[:min(len(errs), maxImmutable)],
	}
}

// permit undoes in a new spec what may have changed.
func permit(old, spec *corev1.PodSpec) {
	permitContainers(old.Containers, spec.Containers)
	permitContainers(old.InitContainers, spec.InitContainers)
	if old.Resources != nil && spec.Resources != nil {
		permitResources(old.Resources, spec.Resources)
	} else {
		spec.Resources = old.Resources
	}
	if was, is := old.ActiveDeadlineSeconds, spec.ActiveDeadlineSeconds; is != nil && (was == nil || *is <= *was) {
		spec.ActiveDeadlineSeconds = was
	}
	if !slices.ContainsFunc(old.Tolerations, func(t corev1.Toleration) bool { return !tolerates(spec.Tolerations, t) }) {
		spec.Tolerations = old.Tolerations
	}
	if !slices.ContainsFunc(spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return !slices.Contains(old.SchedulingGates, g) }) {
		spec.SchedulingGates = old.SchedulingGates
	}
	if old.NodeName == "" {
		spec.NodeName = "" // which is how a pod is bound
	}
}

// permitContainers undoes what may have changed of containers that are still in their places.
func permitContainers(old, list []corev1.Container) {
	for i := range min(len(old), len(list)) {
		list[i].Image = old[i].Image
		permitResources(&old[i].Resources, &list[i].Resources)
	}
}

// permitResources undoes a change of CPU and memory.
func permitResources(old, resources *corev1.ResourceRequirements) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		resources.Requests = undo(name, old.Requests, resources.Requests)
		resources.Limits = undo(name, old.Limits, resources.Limits)
	}
}

// undo returns a list with the amount that the old one has of a resource.
func undo(name corev1.ResourceName, old, list corev1.ResourceList) corev1.ResourceList {
	amount, set := old[name]
	if !set {
		delete(list, name)
		return list
	}
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = amount
	return list
}

// tolerates reports whether a toleration is in a list, for however long.
func tolerates(list []corev1.Toleration, old corev1.Toleration) bool {
	return slices.ContainsFunc(list, func(t corev1.Toleration) bool {
		t.TolerationSeconds = old.TolerationSeconds
		return t == old
	})
}

// keepEphemeral returns an error for each ephemeral container that a new spec changes or lacks, and then leaves in the
// spec what the old one has.
func keepEphemeral(old []corev1.EphemeralContainer, spec *corev1.PodSpec) (errs field.ErrorList) {
	path := field.NewPath("spec", "ephemeralContainers")
	indexes := make(map[string]int, len(spec.EphemeralContainers))
	for i := range spec.EphemeralContainers {
		indexes[spec.EphemeralContainers[i].Name] = i
	}
	for i := range old {
		at, found := indexes[old[i].Name]
		if !found {
			errs = append(errs, field.Forbidden(path.Key(old[i].Name), "may not be removed"))
			continue
		}
		was, is := reflect.ValueOf(&old[i]).Elem(), reflect.ValueOf(&spec.EphemeralContainers[at]).Elem()
		for _, path := range differences(was, is, path.Index(at)) {
			errs = append(errs, field.Forbidden(path, "may not change while the pod keeps its UID"))
		}
	}
	spec.EphemeralContainers = old
	return errs
}
