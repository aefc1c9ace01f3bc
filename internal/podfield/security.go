// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// GroupsPolicies are the values of supplementalGroupsPolicy.
func GroupsPolicies() []corev1.SupplementalGroupsPolicy {
	return []corev1.SupplementalGroupsPolicy{corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict}
}

// AppArmorTypes are the types of an AppArmor profile.
func AppArmorTypes() []corev1.AppArmorProfileType {
	return []corev1.AppArmorProfileType{
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined,
	}
}

// AnnotatedAppArmor reads the value of the annotation that came before the field; nil for any other value.
func AnnotatedAppArmor(value string) *corev1.AppArmorProfile {
	switch value {
	case corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	}
	name, ok := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	if !ok {
		return nil
	}
	return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
}

// SysctlName turns net/ipv4/conf/eno2.100/rp_filter into net.ipv4.conf.eno2/100.rp_filter: where a slash comes
// first, dots and slashes change places (sysctl.d(5)).
func SysctlName(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return r
	}, name)
}
