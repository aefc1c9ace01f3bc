// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Annotations that k8s.io/api no longer exports.
const (
	annotationSeccompPod        = "seccomp.security.alpha.kubernetes.io/pod"
	annotationSeccompContainer  = "container.seccomp.security.alpha.kubernetes.io/" // followed by the container name
	annotationSeccompUnconfined = "unconfined"
	annotationSeccompLocalhost  = "localhost/" // followed by the path of the profile
)

// validateSeccompAnnotations checks that deprecated seccomp annotations are valid and do not contradict the fields. Source:
// ValidateSeccompPodAnnotations and validateSeccompAnnotationsAndFields in pkg/apis/core/validation.
func validateSeccompAnnotations(pod *corev1.Pod, index nameIndex, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(pod.Annotations) {
		name, ofContainer := strings.CutPrefix(key, annotationSeccompContainer)
		if key != annotationSeccompPod && !ofContainer {
			continue
		}
		value := pod.Annotations[key]
		annotated, invalid := annotatedSeccomp(value, path.Key(key))
		errs = append(errs, invalid...)
		profile, at := optional.OrZero(pod.Spec.SecurityContext).SeccompProfile, field.NewPath("spec")
		if ofContainer {
			c, ok := index.containers[name]
			if !ok {
				continue // as in the API server
			}
			profile, at = optional.OrZero(c.SecurityContext).SeccompProfile, c.Path
		}
		if profile != nil && !reflect.DeepEqual(profile, annotated) {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "seccompProfile"), "must not contradict the annotation "+key))
		}
	}
	return errs
}

// annotatedSeccomp returns the seccomp profile that the value of a deprecated annotation stands for. For an invalid value it
// returns an error with this path.
func annotatedSeccomp(value string, path *field.Path) (*corev1.SeccompProfile, field.ErrorList) {
	switch value {
	case corev1.SeccompProfileRuntimeDefault, corev1.DeprecatedSeccompProfileDockerDefault:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, nil
	case annotationSeccompUnconfined:
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}, nil
	}
	file, ok := strings.CutPrefix(value, annotationSeccompLocalhost)
	if !ok {
		return nil, field.ErrorList{field.Invalid(path, value, "must be a valid seccomp profile")}
	}
	return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &file}, validateWith(path, file, podfield.CheckRelative)
}

// validateDeletionCost checks that the annotation controller.kubernetes.io/pod-deletion-cost, if any, is a 32-bit integer.
// Source: GetDeletionCostFromPodAnnotations in pkg/apis/core/helper.
func validateDeletionCost(annotations map[string]string, path *field.Path) field.ErrorList {
	value, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return nil
	}
	_, err := strconv.ParseInt(value, 10, 32)
	// Without a plus sign or leading zeros.
	if plain := value == "0" || strings.HasPrefix(value, "-") || value != "" && value[0] >= '1' && value[0] <= '9'; err != nil || !plain {
		return field.ErrorList{field.Invalid(path.Key(corev1.PodDeletionCost), value, "must be a 32bit integer")}
	}
	return nil
}

// validateNodeSelector checks that keys and values of the selector are valid labels.
func validateNodeSelector(selector map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(selector) {
		errs = append(errs, validateWith(path, key, validation.IsQualifiedName)...)
		errs = append(errs, validateWith(path.Key(key), selector[key], validation.IsValidLabelValue)...)
	}
	return errs
}
