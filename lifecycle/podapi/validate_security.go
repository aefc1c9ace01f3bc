// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

const maxProfileName = 4095 // PATH_MAX - 1

func validatePodSecurity(s *corev1.PodSpec, spec *field.Path) field.ErrorList {
	sc, path := s.SecurityContext, spec.Child("securityContext")
	if sc == nil {
		return nil
	}
	errs := validateIDs(sc.RunAsUser, sc.RunAsGroup, path)
	if sc.FSGroup != nil {
		errs = append(errs, validateWith(path.Child("fsGroup"), *sc.FSGroup, validation.IsValidGroupID)...)
	}
	for i, gid := range sc.SupplementalGroups {
		errs = append(errs, validateWith(path.Child("supplementalGroups").Index(i), gid, validation.IsValidGroupID)...)
	}
	if p := sc.SupplementalGroupsPolicy; p != nil {
		errs = append(errs, validateOneOf(path.Child("supplementalGroupsPolicy"), *p, podfield.GroupsPolicies()...)...)
	}
	if p := sc.FSGroupChangePolicy; p != nil {
		errs = append(errs, validateOneOf(path.Child("fsGroupChangePolicy"), *p, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)...)
	}
	if p := sc.SELinuxChangePolicy; p != nil {
		errs = append(errs, validateOneOf(path.Child("seLinuxChangePolicy"), *p, corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
	}
	errs = append(errs, validateSysctls(s, path.Child("sysctls"))...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	return append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
}

// validateNoWindows checks that a pod whose spec.os is linux has no Windows options. If spec.os is unset, Windows options are
// accepted and have no effect.
func validateNoWindows(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.OS == nil || spec.OS.Name != corev1.Linux {
		return nil
	}
	var errs field.ErrorList
	if optional.OrZero(spec.SecurityContext).WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("securityContext", "windowsOptions"), "cannot be set for a linux pod"))
	}
	for c := range podfield.Containers(spec) {
		if optional.OrZero(c.SecurityContext).WindowsOptions != nil {
			errs = append(errs, field.Forbidden(c.Path.Child("securityContext", "windowsOptions"), "cannot be set for a linux pod"))
		}
	}
	return errs
}

func validateContainerSecurity(securityContext *corev1.SecurityContext, path *field.Path, hostUsers bool) field.ErrorList {
	if securityContext == nil {
		return nil
	}
	errs := validateIDs(securityContext.RunAsUser, securityContext.RunAsGroup, path)
	if m := securityContext.ProcMount; m != nil {
		errs = append(errs, validateOneOf(path.Child("procMount"), *m, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if hostUsers && *m == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(path.Child("procMount"), *m, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	if a := securityContext.AllowPrivilegeEscalation; a != nil && !*a {
		if optional.IsTrue(securityContext.Privileged) {
			errs = append(errs, field.Invalid(path.Child("allowPrivilegeEscalation"), false, "cannot be false when `privileged` is true"))
		}
		if securityContext.Capabilities != nil && slices.Contains(securityContext.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs, field.Invalid(path.Child("allowPrivilegeEscalation"), false, "cannot be false when CAP_SYS_ADMIN is added"))
		}
	}
	errs = append(errs, validateSeccomp(securityContext.SeccompProfile, path.Child("seccompProfile"))...)
	return append(errs, validateAppArmor(securityContext.AppArmorProfile, path.Child("appArmorProfile"))...)
}

func validateIDs(user, group *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, validateWith(path.Child("runAsUser"), *user, validation.IsValidUserID)...)
	}
	if group != nil {
		errs = append(errs, validateWith(path.Child("runAsGroup"), *group, validation.IsValidGroupID)...)
	}
	return errs
}

func validateSeccomp(profile *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if profile == nil {
		return nil
	}
	errs := validateOneOf(path.Child("type"), profile.Type, corev1.SeccompProfileTypeLocalhost,
		corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	path = path.Child("localhostProfile")
	switch local := profile.Type == corev1.SeccompProfileTypeLocalhost; {
	case local && profile.LocalhostProfile == nil:
		errs = append(errs, field.Required(path, "must be set when seccomp type is Localhost"))
	case local:
		errs = append(errs, validateWith(path, *profile.LocalhostProfile, podfield.CheckRelative)...)
	case profile.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(path, *profile.LocalhostProfile, "can only be set when seccomp type is Localhost"))
	}
	return errs
}

func validateAppArmor(profile *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if profile == nil {
		return nil
	}
	errs := validateOneOf(path.Child("type"), profile.Type, podfield.AppArmorTypes()...)
	path = path.Child("localhostProfile")
	name := optional.OrZero(profile.LocalhostProfile)
	switch local := profile.Type == corev1.AppArmorProfileTypeLocalhost; {
	case !local && profile.LocalhostProfile != nil:
		errs = append(errs, field.Invalid(path, *name, "can only be set when AppArmor type is Localhost"))
	case local && strings.TrimSpace(*name) == "":
		errs = append(errs, field.Required(path, "must be set when AppArmor type is Localhost"))
	case strings.TrimSpace(*name) != *name:
		errs = append(errs, field.Invalid(path, *name, "must not be padded with whitespace"))
	case len(*name) > maxProfileName:
		errs = append(errs, field.TooLong(path, *name, maxProfileName))
	}
	return errs
}

// validateAppArmorAnnotations checks that deprecated AppArmor annotations are valid and do not contradict the fields.
func validateAppArmorAnnotations(pod *corev1.Pod, index nameIndex, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range sortedKeys(pod.Annotations) {
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		c, ok := index.containers[name]
		if !ok {
			errs = append(errs, field.Invalid(path.Key(key), name, "container not found"))
			continue
		}
		value := pod.Annotations[key]
		annotated := podfield.ParseAppArmorAnnotation(value)
		if value != "" && annotated == nil {
			errs = append(errs, field.Invalid(path.Key(key), value, "invalid AppArmor profile"))
		}
		profile := optional.First(optional.OrZero(c.SecurityContext).AppArmorProfile, optional.OrZero(pod.Spec.SecurityContext).AppArmorProfile)
		if profile != nil && !reflect.DeepEqual(profile, annotated) {
			// Otherwise the container could run without the intended profile.
			errs = append(errs, field.Forbidden(c.Path.Child("securityContext", "appArmorProfile"), "must not contradict the annotation "+key))
		}
	}
	return errs
}

// validateStopSignal checks that the API accepts the name of the stop signal, and that spec.os is set, which a stop signal
// requires.
func validateStopSignal(pod *corev1.Pod, signal corev1.Signal, path *field.Path) field.ErrorList {
	switch {
	case pod.Spec.OS == nil:
		return field.ErrorList{field.Forbidden(path, "may not be set for containers with empty `spec.os.name`")}
	case !isSignal(string(signal)):
		return field.ErrorList{field.Invalid(path, signal, "must be the name of a signal, such as SIGTERM or SIGRTMIN+3")}
	}
	return nil
}

func isSignal(s string) bool {
	if realtime := regexp.MustCompile(`^SIGRT(MIN(\+([1-9]|1[0-5]))?|MAX(-([1-9]|1[0-4]))?)$`); realtime.MatchString(s) {
		return true
	}
	const names = " ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT SEGV STKFLT STOP SYS TERM" +
		" TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ "
	name, ok := strings.CutPrefix(s, "SIG")
	return ok && name != "" && !strings.Contains(name, " ") && strings.Contains(names, " "+name+" ")
}
