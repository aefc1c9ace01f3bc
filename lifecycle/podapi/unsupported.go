// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Unsupported returns an error for each field of a valid pod that this version does not implement. It ignores fields that
// make no difference on the node, such as those that only a scheduler reads.
func Unsupported(pod *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	spec, path := &pod.Spec, field.NewPath("spec")
	refuse := func(set bool, name, feature string) {
		if set {
			errs = append(errs, unsupportedError(path.Child(name), feature))
		}
	}
	refuse(len(spec.ResourceClaims) > 0, "resourceClaims", "dynamic resource allocation")
	refuse(spec.OS != nil && spec.OS.Name == corev1.Windows, "os", "Windows")
	for c := range podfield.Containers(spec) {
		errs = append(errs, unsupportedContainer(c)...)
	}
	return fielderr.Short(errs)
}

func unsupportedContainer(container podfield.Container) field.ErrorList {
	if len(container.Resources.Claims) == 0 {
		return nil
	}
	return field.ErrorList{unsupportedError(container.Path.Child("resources", "claims"), "dynamic resource allocation")}
}

func unsupportedError(path *field.Path, feature string) *field.Error {
	return field.Forbidden(path, "not supported by this version: "+feature)
}
