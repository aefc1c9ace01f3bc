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

// ImmutableError is the error of an update that changes fields which must not change while the pod keeps its UID.
type ImmutableError struct {
	Pod    cri.PodIdentity // the pod before the update
	Fields field.ErrorList // errors for the changed fields, at most 10
}

// Error names the pod and the fields.
func (e *ImmutableError) Error() string {
	texts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		texts[i] = f.Error()
	}
	return fmt.Sprintf("pod %s/%s: UID %s: %s", e.Pod.Namespace, e.Pod.Name, e.Pod.UID, strings.Join(texts, "; "))
}

// Unwrap returns the errors of the fields.
func (e *ImmutableError) Unwrap() []error {
	errs := make([]error, len(e.Fields))
	for i, f := range e.Fields {
		errs[i] = f
	}
	return errs
}

// maxImmutable is the maximum number of fields in an [ImmutableError].
const maxImmutable = 10

// ValidateUpdate returns an [*ImmutableError] if the pod old must not be updated to pod, which has the same UID. [Default]
// must have been called for both. ValidateUpdate changes neither of them.
//
// As in an API server, these fields may change: images of containers and init containers; CPU and memory of containers, init
// containers and the pod; labels, annotations and other metadata except names; the status. Tolerations and ephemeral
// containers may be added. activeDeadlineSeconds may be set or lowered. A deletion timestamp may be set. Source:
// ValidatePodUpdate, ValidatePodResize and ValidatePodEphemeralContainersUpdate in pkg/apis/core/validation/validation.go.
func ValidateUpdate(old, pod *corev1.Pod) error {
	wanted := pod.Spec.DeepCopy()
	errs := keepEphemeral(old.Spec.EphemeralContainers, wanted)
	undoAllowed(&old.Spec, wanted)
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	paths := findDifferences(reflect.ValueOf(&old.Spec).Elem(), reflect.ValueOf(wanted).Elem(), spec)
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

// undoAllowed resets each field of the new spec that an update may change. Differences that remain are forbidden changes.
func undoAllowed(old, spec *corev1.PodSpec) {
	undoContainers(old.Containers, spec.Containers)
	undoContainers(old.InitContainers, spec.InitContainers)
	if old.Resources != nil && spec.Resources != nil {
		undoResources(old.Resources, spec.Resources)
	} else {
		spec.Resources = old.Resources
	}
	if oldDeadline, newDeadline := old.ActiveDeadlineSeconds, spec.ActiveDeadlineSeconds; newDeadline != nil && (oldDeadline == nil || *newDeadline <= *oldDeadline) {
		spec.ActiveDeadlineSeconds = oldDeadline
	}
	if !slices.ContainsFunc(old.Tolerations, func(t corev1.Toleration) bool { return !hasToleration(spec.Tolerations, t) }) {
		spec.Tolerations = old.Tolerations
	}
	if !slices.ContainsFunc(spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return !slices.Contains(old.SchedulingGates, g) }) {
		spec.SchedulingGates = old.SchedulingGates
	}
	if old.NodeName == "" {
		spec.NodeName = "" // binding a pod to a node is allowed
	}
}

// undoContainers resets the image, CPU and memory, which an update may change, of each container to those in old.
func undoContainers(old, list []corev1.Container) {
	for i := range min(len(old), len(list)) {
		list[i].Image = old[i].Image
		undoResources(&old[i].Resources, &list[i].Resources)
	}
}

// undoResources restores the CPU and memory requests and limits in resources to the amounts in old.
func undoResources(old, resources *corev1.ResourceRequirements) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		resources.Requests = restoreAmount(name, old.Requests, resources.Requests)
		resources.Limits = restoreAmount(name, old.Limits, resources.Limits)
	}
}

// restoreAmount sets the amount of a resource in list to that in old, or deletes it, and returns the list.
func restoreAmount(name corev1.ResourceName, old, list corev1.ResourceList) corev1.ResourceList {
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

// hasToleration reports whether the list contains the toleration old. The field TolerationSeconds may differ.
func hasToleration(list []corev1.Toleration, old corev1.Toleration) bool {
	return slices.ContainsFunc(list, func(t corev1.Toleration) bool {
		t.TolerationSeconds = old.TolerationSeconds
		return t == old
	})
}

// keepEphemeral returns an error for each ephemeral container in old that is missing or changed, and ignores added ones.
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
		oldContainer, newContainer := reflect.ValueOf(&old[i]).Elem(), reflect.ValueOf(&spec.EphemeralContainers[at]).Elem()
		for _, path := range findDifferences(oldContainer, newContainer, path.Index(at)) {
			errs = append(errs, field.Forbidden(path, "may not change while the pod keeps its UID"))
		}
	}
	// A later comparison then finds no difference.
	spec.EphemeralContainers = old
	return errs
}
