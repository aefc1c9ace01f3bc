// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// UsesAppArmor reports whether an AppArmor profile is set for the pod or one of its containers, in a field or in the deprecated
// annotation. Source: isRequired in pkg/security/apparmor/helpers.go.
func UsesAppArmor(pod *corev1.Pod) bool {
	confined := func(p *corev1.AppArmorProfile) bool {
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	if confined(optional.OrZero(pod.Spec.SecurityContext).AppArmorProfile) {
		return true
	}
	for c := range podfield.Containers(&pod.Spec) {
		if confined(optional.OrZero(c.SecurityContext).AppArmorProfile) {
			return true
		}
	}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && value != corev1.DeprecatedAppArmorBetaProfileNameUnconfined {
			return true
		}
	}
	return false
}
