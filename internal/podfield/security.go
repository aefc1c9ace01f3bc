// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podfield

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// GroupsPolicies returns the valid values of supplementalGroupsPolicy in a pod security context.
func GroupsPolicies() []corev1.SupplementalGroupsPolicy {
	return []corev1.SupplementalGroupsPolicy{corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict}
}

// AppArmorTypes returns the valid values of the type of an AppArmor profile.
func AppArmorTypes() []corev1.AppArmorProfileType {
	return []corev1.AppArmorProfileType{
		corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined,
	}
}

// ParseAppArmorAnnotation returns the AppArmor profile for the value of a container's AppArmor annotation, which is
// deprecated in favor of the field appArmorProfile. It returns nil if the value is invalid.
func ParseAppArmorAnnotation(value string) *corev1.AppArmorProfile {
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

// SysctlName returns the name of a sysctl with dots as separators. If the first separator is a slash, dots and slashes are
// swapped, as in sysctl.d(5): net/ipv4/conf/eno2.100/rp_filter becomes net.ipv4.conf.eno2/100.rp_filter.
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
