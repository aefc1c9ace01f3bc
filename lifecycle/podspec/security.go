// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// containerSecurity returns the security context of a container, completed from that of its pod. Source:
// DetermineEffectiveSecurityContext in pkg/securitycontext.
func containerSecurity(pod *corev1.Pod, container *corev1.Container, path *field.Path, launch Launch, opts Options) (cri.ContainerSecurity, error) {
	podSC, sc := optional.OrZero(pod.Spec.SecurityContext), optional.OrZero(container.SecurityContext)
	var s cri.ContainerSecurity
	var err error
	if err = setUser(&s, podSC, sc, path, launch); err != nil {
		return s, err
	}
	if s.Namespaces, err = podNamespaces(pod, opts); err != nil {
		return s, err
	}
	if err = setTarget(pod, container, launch, &s.Namespaces); err != nil {
		return s, err
	}
	if s.SupplementalGroupsPolicy, err = groupsPolicy(podSC); err != nil {
		return s, err
	}
	if s.Seccomp, err = seccompProfile(podSC, sc, path, opts); err != nil {
		return s, err
	}
	if s.AppArmor, err = appArmorProfile(pod, container, podSC, sc, path); err != nil {
		return s, err
	}
	s.SupplementalGroups = slices.Concat(fsGroup(podSC), podSC.SupplementalGroups, opts.volumeGroups(pod))
	s.SELinux = convertSELinux(optional.First(sc.SELinuxOptions, podSC.SELinuxOptions))
	s.Capabilities = convertCapabilities(sc.Capabilities)
	s.Privileged = optional.IsTrue(sc.Privileged)
	s.ReadonlyRootfs = optional.IsTrue(sc.ReadOnlyRootFilesystem)
	s.NoNewPrivs = sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
	if sc.ProcMount == nil || *sc.ProcMount != corev1.UnmaskedProcMount {
		s.MaskedPaths = maskedPaths(opts)
		s.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	return s, nil
}

// setUser sets the user and group from the container, the pod or the image. It returns an error if runAsNonRoot is set and the
// user may be root.
func setUser(security *cri.ContainerSecurity, podContext *corev1.PodSecurityContext, securityContext *corev1.SecurityContext, path *field.Path, launch Launch) error {
	security.RunAsUser = optional.First(securityContext.RunAsUser, podContext.RunAsUser)
	security.RunAsGroup = optional.First(securityContext.RunAsGroup, podContext.RunAsGroup)
	stated := security.RunAsUser != nil
	if !stated && launch.Image != nil {
		switch {
		case launch.Image.UID != nil:
			security.RunAsUser = launch.Image.UID
		case launch.Image.Username != "":
			security.RunAsUsername = launch.Image.Username
		default:
			security.RunAsUser = new(int64)
		}
	}
	if !optional.IsTrue(optional.First(securityContext.RunAsNonRoot, podContext.RunAsNonRoot)) {
		return nil
	}
	path = path.Child("runAsNonRoot")
	switch {
	case security.RunAsUsername != "":
		return field.Invalid(path, true, "the image runs as user "+security.RunAsUsername+", who is not known to be other than root; set runAsUser")
	case security.RunAsUser == nil:
		return field.Invalid(path, true, "the user of the image is not known; set runAsUser")
	case *security.RunAsUser == 0 && stated:
		return field.Invalid(path, true, "runAsUser is 0")
	case *security.RunAsUser == 0:
		return field.Invalid(path, true, "the image runs as root; set runAsUser")
	case !stated:
		if msgs := validation.IsValidUserID(*security.RunAsUser); len(msgs) > 0 {
			return field.Invalid(path, true, "the user of the image is not valid: "+strings.Join(msgs, "; "))
		}
	}
	return nil
}

// seccompProfile returns the seccomp profile of the container or its pod. Without one, Options.SeccompDefault decides.
func seccompProfile(podContext *corev1.PodSecurityContext, securityContext *corev1.SecurityContext, path *field.Path, opts Options) (*cri.SecurityProfile, error) {
	profile := optional.First(securityContext.SeccompProfile, podContext.SeccompProfile)
	switch {
	case profile == nil && opts.SeccompDefault, profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}, nil
	case profile == nil || profile.Type != corev1.SeccompProfileTypeLocalhost:
		return &cri.SecurityProfile{Type: cri.ProfileUnconfined}, nil
	case profile.LocalhostProfile == nil || *profile.LocalhostProfile == "":
		return nil, field.Required(path.Child("seccompProfile", "localhostProfile"), "must be set when seccomp type is Localhost")
	}
	return &cri.SecurityProfile{
		Type:         cri.ProfileLocalhost,
		LocalhostRef: filepath.Join(cmp.Or(opts.SeccompRoot, defaultSeccompRoot), *profile.LocalhostProfile),
	}, nil
}

// appArmorProfile returns the AppArmor profile of a container from its security context, its deprecated annotation or its pod.
// It returns nil if none is set.
func appArmorProfile(pod *corev1.Pod, container *corev1.Container, podContext *corev1.PodSecurityContext, securityContext *corev1.SecurityContext, path *field.Path) (*cri.SecurityProfile, error) {
	profile := securityContext.AppArmorProfile
	if profile == nil {
		profile = optional.First(podfield.ParseAppArmorAnnotation(pod.Annotations[corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+container.Name]), podContext.AppArmorProfile)
	}
	if profile == nil {
		return nil, nil
	}
	path = path.Child("appArmorProfile")
	switch profile.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &cri.SecurityProfile{Type: cri.ProfileRuntimeDefault}, nil
	case corev1.AppArmorProfileTypeUnconfined:
		return &cri.SecurityProfile{Type: cri.ProfileUnconfined}, nil
	case corev1.AppArmorProfileTypeLocalhost:
		if profile.LocalhostProfile == nil {
			return nil, field.Required(path.Child("localhostProfile"), "must be set when AppArmor type is Localhost")
		}
		return &cri.SecurityProfile{Type: cri.ProfileLocalhost, LocalhostRef: *profile.LocalhostProfile}, nil
	default:
		return nil, field.NotSupported(path.Child("type"), profile.Type, podfield.AppArmorTypes())
	}
}

// maskedPaths returns the paths that are hidden in a container: the paths that runc and Docker hide by default, and
// Options.MaskedPaths.
func maskedPaths(opts Options) []string {
	return slices.Concat([]string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	}, opts.MaskedPaths)
}

// fsGroup returns a list that contains only the fsGroup of the pod, or nil if the pod has none.
func fsGroup(securityContext *corev1.PodSecurityContext) []int64 {
	if securityContext.FSGroup == nil {
		return nil
	}
	return []int64{*securityContext.FSGroup}
}

// groupsPolicy returns the CRI value for the supplementalGroupsPolicy of the pod; the default is Merge.
func groupsPolicy(securityContext *corev1.PodSecurityContext) (cri.GroupsPolicy, error) {
	if securityContext.SupplementalGroupsPolicy == nil {
		return cri.GroupsMerge, nil
	}
	switch *securityContext.SupplementalGroupsPolicy {
	case corev1.SupplementalGroupsPolicyMerge:
		return cri.GroupsMerge, nil
	case corev1.SupplementalGroupsPolicyStrict:
		return cri.GroupsStrict, nil
	}
	return 0, field.NotSupported(field.NewPath("spec", "securityContext", "supplementalGroupsPolicy"),
		*securityContext.SupplementalGroupsPolicy, podfield.GroupsPolicies())
}

// convertSELinux converts SELinux options.
func convertSELinux(options *corev1.SELinuxOptions) *cri.SELinux {
	if options == nil {
		return nil
	}
	return &cri.SELinux{User: options.User, Role: options.Role, Type: options.Type, Level: options.Level}
}

// convertCapabilities returns the added and dropped capabilities in CRI form.
func convertCapabilities(capabilities *corev1.Capabilities) *cri.Capabilities {
	if capabilities == nil {
		return nil
	}
	names := func(list []corev1.Capability) []string {
		var s []string
		for _, name := range list {
			s = append(s, string(name))
		}
		return s
	}
	return &cri.Capabilities{Add: names(capabilities.Add), Drop: names(capabilities.Drop)}
}
