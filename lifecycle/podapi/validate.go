// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/fielderr"
	"github.com/seed81659283/nodeagent/internal/optional"
	"github.com/seed81659283/nodeagent/internal/podfield"
)

// Validate returns the errors for which an API server would reject the pod, as far as they concern fields that a node reads.
// It also returns an error if the UID is missing or not a valid file name. [Default] must have been called for the pod. For
// a volume of an unsupported type, only the name and the number of sources are checked.
//
// Each list and map in the pod may have at most 1,000 entries. If one has more, the pod is not checked further. Validate
// returns at most 100 errors, and shortens long values in them. Source: pkg/apis/core/validation/validation.go.
func Validate(pod *corev1.Pod) field.ErrorList {
	errs := validateCounts(pod)
	if len(errs) == 0 {
		errs = validatePod(pod)
	}
	return fielderr.Short(errs)
}

func validatePod(pod *corev1.Pod) field.ErrorList {
	meta, spec, index := field.NewPath("metadata"), field.NewPath("spec"), indexNames(&pod.Spec)
	errs := apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta)
	errs = append(errs, validateUID(string(pod.UID), meta.Child("uid"))...)
	errs = append(errs, validateAppArmorAnnotations(pod, index, meta.Child("annotations"))...)
	errs = append(errs, validateSeccompAnnotations(pod, index, meta.Child("annotations"))...)
	errs = append(errs, validateDeletionCost(pod.Annotations, meta.Child("annotations"))...)
	errs = append(errs, validateSpec(&pod.Spec, spec)...)
	errs = append(errs, validateNodeSelector(pod.Spec.NodeSelector, spec.Child("nodeSelector"))...)
	errs = append(errs, validateHostnames(&pod.Spec, spec)...)
	errs = append(errs, validateDNS(&pod.Spec, spec.Child("dnsConfig"))...)
	errs = append(errs, validatePodSecurity(&pod.Spec, spec)...)
	errs = append(errs, validateNoWindows(&pod.Spec, spec)...)
	errs = append(errs, validatePodResources(&pod.Spec, spec)...)
	errs = append(errs, validateHostUsers(&pod.Spec, spec)...)
	errs = append(errs, validateHostAliases(pod.Spec.HostAliases, spec.Child("hostAliases"))...)
	errs = append(errs, validateVolumes(&pod.Spec, spec.Child("volumes"))...)
	errs = append(errs, validateClaimNames(pod, spec.Child("volumes"))...)
	errs = append(errs, validateContainers(pod, index)...)
	return append(errs, validateListed(pod, meta)...)
}

func validateUID(uid string, path *field.Path) field.ErrorList {
	if uid == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	// An underscore is forbidden too: it separates name and UID in the log directory.
	if len(uid) > 63 || !regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$`).MatchString(uid) {
		return field.ErrorList{field.Invalid(path, uid, "must be at most 63 letters, digits and inner dashes")}
	}
	return nil
}

func validateSpec(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateOneOf(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)...)
	errs = append(errs, validateOneOf(path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)...)
	if g := spec.TerminationGracePeriodSeconds; g == nil {
		errs = append(errs, field.Required(path.Child("terminationGracePeriodSeconds"), ""))
	} else {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*g, path.Child("terminationGracePeriodSeconds"))...)
	}
	if d := spec.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if spec.OS != nil {
		errs = append(errs, validateOneOf(path.Child("os", "name"), spec.OS.Name, corev1.Linux, corev1.Windows)...)
	}
	if spec.NodeName != "" {
		errs = append(errs, validateWith(path.Child("nodeName"), spec.NodeName, validation.IsDNS1123Subdomain)...)
		if len(spec.SchedulingGates) > 0 {
			errs = append(errs, field.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
		}
	}
	if spec.ServiceAccountName != "" {
		errs = append(errs, validateWith(path.Child("serviceAccountName"), spec.ServiceAccountName, validation.IsDNS1123Subdomain)...)
	}
	if spec.RuntimeClassName != nil {
		errs = append(errs, validateWith(path.Child("runtimeClassName"), *spec.RuntimeClassName, validation.IsDNS1123Subdomain)...)
	}
	for i, gate := range spec.ReadinessGates {
		errs = append(errs, validateWith(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType), validation.IsQualifiedName)...)
	}
	if spec.HostPID && optional.IsTrue(spec.ShareProcessNamespace) {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true, "cannot be set together with hostPID"))
	}
	return errs
}

func validateHostnames(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.Hostname != "" {
		errs = append(errs, validateWith(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label)...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, validateWith(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label)...)
	}
	if spec.HostnameOverride == nil {
		return errs
	}
	path = path.Child("hostnameOverride")
	if optional.IsTrue(spec.SetHostnameAsFQDN) {
		errs = append(errs, field.Forbidden(path, "may not be specified when setHostnameAsFQDN is true"))
	}
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if len(*spec.HostnameOverride) > podfield.MaxFQDN {
		errs = append(errs, field.TooLong(path, *spec.HostnameOverride, podfield.MaxFQDN))
	}
	return append(errs, validateWith(path, *spec.HostnameOverride, validation.IsDNS1123Subdomain)...)
}

// validateHostUsers checks that a pod with its own user namespace shares no other namespace with the host.
func validateHostUsers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.HostUsers == nil || *spec.HostUsers {
		return nil
	}
	var errs field.ErrorList
	forbid := func(set bool, path *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(path, "may not be set when hostUsers is false"))
		}
	}
	forbid(spec.HostNetwork, path.Child("hostNetwork"))
	forbid(spec.HostPID, path.Child("hostPID"))
	forbid(spec.HostIPC, path.Child("hostIPC"))
	for c := range podfield.Containers(spec) {
		// The owner of a device cannot be mapped.
		forbid(len(c.VolumeDevices) > 0, c.Path.Child("volumeDevices"))
	}
	return errs
}

func validateHostAliases(aliases []corev1.HostAlias, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range aliases {
		if len(errs) > fielderr.MaxErrors {
			break
		}
		path := path.Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("ip"), a.IP, true, nil)...)
		for j, name := range a.Hostnames {
			errs = append(errs, validateWith(path.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain)...)
		}
	}
	return errs
}

func validateDNS(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	c := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone && (c == nil || len(c.Nameservers) == 0) {
		return field.ErrorList{field.Required(path.Child("nameservers"), "must provide at least one when dnsPolicy is None")}
	}
	if c == nil {
		return nil
	}
	var errs field.ErrorList
	if n := len(c.Nameservers); n > podfield.MaxNameservers {
		errs = append(errs, field.TooMany(path.Child("nameservers"), n, podfield.MaxNameservers))
	}
	for i, ip := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ip, true, nil)...)
	}
	if n := len(c.Searches); n > podfield.MaxSearches {
		errs = append(errs, field.TooMany(path.Child("searches"), n, podfield.MaxSearches))
	}
	if len(strings.Join(c.Searches, " ")) > podfield.MaxSearchChars {
		errs = append(errs, field.Invalid(path.Child("searches"), c.Searches, fmt.Sprintf("must not have more than %d characters (including spaces)", podfield.MaxSearchChars)))
	}
	for i, spec := range c.Searches {
		if spec != "." {
			errs = append(errs, validateWith(path.Child("searches").Index(i), strings.TrimSuffix(spec, "."), validation.IsDNS1123SubdomainWithUnderscore)...)
		}
	}
	for i, o := range c.Options {
		if o.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i).Child("name"), ""))
		}
	}
	return errs
}

// validateOneOf checks that the value of the field at path is one of the valid values. An empty value is an error.
func validateOneOf[T ~string](path *field.Path, value T, valid ...T) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(path, "")}
	case !slices.Contains(valid, value):
		return field.ErrorList{field.NotSupported(path, value, valid)}
	}
	return nil
}

// validateWith calls check(value), and returns an error for each message in the result. path is the path of the field.
func validateWith[T any](path *field.Path, value T, check func(T) []string) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range check(value) {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

// sortedKeys returns the sorted keys of a map, so that errors have a fixed order.
func sortedKeys[M ~map[K]V, K ~string, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }
