// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/qos"
)

// Validate returns what the API server would refuse in the fields that this package reads, and a UID that is missing
// or not usable as a file name (pkg/apis/core/validation/validation.go). The pod has been through [Default]. Fields
// that [Unsupported] refuses are not looked into.
func Validate(pod *corev1.Pod) field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta)
	errs = append(errs, validateUID(string(pod.UID), meta.Child("uid"))...)
	errs = append(errs, validateAppArmorAnnotations(pod, meta.Child("annotations"))...)
	errs = append(errs, validateSpec(&pod.Spec, spec)...)
	errs = append(errs, validateHostnames(&pod.Spec, spec)...)
	errs = append(errs, validateDNS(&pod.Spec, spec.Child("dnsConfig"))...)
	errs = append(errs, validatePodSecurity(&pod.Spec, spec)...)
	errs = append(errs, validatePodResources(&pod.Spec, spec)...)
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, field.Required(spec.Child("containers"), ""))
	}
	names, hostPorts := make(map[string]bool), make(map[string]bool)
	for i := range pod.Spec.Containers {
		c, path := &pod.Spec.Containers[i], spec.Child("containers").Index(i)
		if names[c.Name] && c.Name != "" {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		names[c.Name] = true
		errs = append(errs, validateContainer(pod, c, path)...)
		errs = append(errs, validatePorts(c.Ports, path.Child("ports"), pod.Spec.HostNetwork, hostPorts)...)
	}
	return errs
}

func validateUID(uid string, path *field.Path) field.ErrorList {
	if uid == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	// No underscore either: it parts the UID from the name in the log directory.
	if len(uid) > 63 || !regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$`).MatchString(uid) {
		return field.ErrorList{field.Invalid(path, uid, "must be at most 63 letters, digits and inner dashes")}
	}
	return nil
}

func validateSpec(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, oneOf(path.Child("restartPolicy"), s.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)...)
	errs = append(errs, oneOf(path.Child("dnsPolicy"), s.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	if g := s.TerminationGracePeriodSeconds; g == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	} else {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*g, path.Child("terminationGracePeriodSeconds"))...)
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if s.OS != nil {
		errs = append(errs, oneOf(path.Child("os", "name"), s.OS.Name, corev1.Linux, corev1.Windows)...)
	}
	if s.NodeName != "" {
		errs = append(errs, invalid(path.Child("nodeName"), s.NodeName, validation.IsDNS1123Subdomain)...)
		if len(s.SchedulingGates) > 0 {
			errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
		}
	}
	if s.ServiceAccountName != "" {
		errs = append(errs, invalid(path.Child("serviceAccountName"), s.ServiceAccountName, validation.IsDNS1123Subdomain)...)
	}
	if s.RuntimeClassName != nil {
		errs = append(errs, invalid(path.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain)...)
	}
	if s.HostPID && isTrue(s.ShareProcessNamespace) {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "cannot be set together with hostPID"))
	}
	return errs
}

func validateHostnames(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Hostname != "" {
		errs = append(errs, invalid(path.Child("hostname"), s.Hostname, validation.IsDNS1123Label)...)
	}
	if s.Subdomain != "" {
		errs = append(errs, invalid(path.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label)...)
	}
	if s.HostnameOverride == nil {
		return errs
	}
	path = path.Child("hostnameOverride")
	if isTrue(s.SetHostnameAsFQDN) {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if len(*s.HostnameOverride) > maxFQDN {
		errs = append(errs, field.TooLong(path, *s.HostnameOverride, maxFQDN))
	}
	return append(errs, invalid(path, *s.HostnameOverride, validation.IsDNS1123Subdomain)...)
}

func validateDNS(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	c := s.DNSConfig
	if s.DNSPolicy == corev1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		return field.ErrorList{field.Required(path.Child("nameservers"), "must provide at least one when dnsPolicy is None")}
	}
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if n := len(c.Nameservers); n > maxNameservers {
		errs = append(errs, field.TooMany(path.Child("nameservers"), n, maxNameservers))
	}
	for i, ip := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ip, true, nil)...)
	}
	if n := len(c.Searches); n > maxSearches {
		errs = append(errs, field.TooMany(path.Child("searches"), n, maxSearches))
	}
	if len(strings.Join(c.Searches, " ")) > maxSearchChars {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %d characters (including spaces)", maxSearchChars)))
	}
	for i, s := range c.Searches {
		if s != "." {
			errs = append(errs, invalid(path.Child("searches").Index(i), strings.TrimSuffix(s, "."), validation.IsDNS1123SubdomainWithUnderscore)...)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i).Child("name"), ""))
		}
	}
	return errs
}

// validatePodResources checks what the pod states for itself, and that its containers fit in.
func validatePodResources(s *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validateQuantities(s.Overhead, path.Child("overhead"))
	if s.Resources == nil {
		return errs
	}
	own := path.Child("resources")
	for _, list := range []corev1.ResourceList{s.Resources.Limits, s.Resources.Requests} {
		for _, name := range sorted(list) {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !isHugePages(name) {
				errs = append(errs, field.NotSupported(own, name, []string{"cpu", "hugepages-", "memory"}))
			}
		}
	}
	errs = append(errs, validateRequirements(s.Resources, own)...)
	for i := range s.Containers {
		limits := path.Child("containers").Index(i).Child("resources", "limits")
		for _, name := range sorted(s.Containers[i].Resources.Limits) {
			limit := s.Containers[i].Resources.Limits[name]
			if most, ok := s.Resources.Limits[name]; ok && limit.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(limits.Key(string(name)), limit.String(), "must be less than or equal to the pod's limit of "+most.String()))
			}
		}
	}
	sum := qos.Requests(&corev1.Pod{Spec: *s}, qos.Options{IgnorePodLevel: true, ExcludeOverhead: true})
	for _, name := range sorted(sum) {
		total := sum[name]
		if whole, ok := s.Resources.Requests[name]; ok && total.Cmp(whole) > 0 {
			errs = append(errs, field.Invalid(own.Child("requests").Key(string(name)), whole.String(), "must be greater than or equal to the containers' requests of "+total.String()))
		}
	}
	return errs
}

// oneOf checks a required field against its possible values.
func oneOf[T ~string](path *field.Path, value T, valid ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(valid, value):
		return field.ErrorList{field.NotSupported(path, value, valid)}
	}
	return nil
}

// invalid returns an error for each message of a check.
func invalid[T any](path *field.Path, value T, valid func(T) []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range valid(value) {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}
