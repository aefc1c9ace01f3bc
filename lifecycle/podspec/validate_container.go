// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The most rules and exit codes in a container's restart policy (KEP-5307).
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

func validateContainer(pod *corev1.Pod, c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, invalid(path.Child("name"), c.Name, validation.IsDNS1123Label)...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case c.Image != strings.TrimSpace(c.Image):
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError, corev1.TerminationMessageReadFile)...)
	errs = append(errs, validateEnv(pod, c, path.Child("env"))...)
	errs = append(errs, validateRequirements(&c.Resources, path.Child("resources"))...)
	errs = append(errs, validateRestartPolicy(c, path)...)
	errs = append(errs, validateContainerSecurity(c.SecurityContext, path.Child("securityContext"), pod.Spec.HostUsers == nil || *pod.Spec.HostUsers)...)
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		errs = append(errs, validateStopSignal(pod, *c.Lifecycle.StopSignal, path.Child("lifecycle", "stopSignal"))...)
	}
	return errs
}

// validatePorts checks the ports of a container. Used collects the ports of the host over all containers.
func validatePorts(ports []corev1.ContainerPort, path *field.Path, hostNetwork bool, used map[string]bool) field.ErrorList {
	var errs field.ErrorList
	names := make(map[string]bool)
	for i, p := range ports {
		path := path.Index(i)
		if p.Name != "" {
			errs = append(errs, invalid(path.Child("name"), p.Name, validation.IsValidPortName)...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(path.Child("containerPort"), ""))
		} else {
			errs = append(errs, invalid(path.Child("containerPort"), int(p.ContainerPort), validation.IsValidPortNum)...)
		}
		errs = append(errs, oneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)...)
		if hostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs, field.Invalid(path.Child("hostPort"), p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
		}
		if p.HostPort == 0 {
			continue
		}
		errs = append(errs, invalid(path.Child("hostPort"), int(p.HostPort), validation.IsValidPortNum)...)
		key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		if used[key] {
			errs = append(errs, field.Duplicate(path.Child("hostPort"), key))
		}
		used[key] = true
	}
	return errs
}

func validateEnv(pod *corev1.Pod, c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		path := path.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			errs = append(errs, invalid(path.Child("name"), e.Name, validation.IsRelaxedEnvVarName)...)
		}
		if e.ValueFrom == nil {
			continue
		}
		path = path.Child("valueFrom")
		sources := 0
		for _, set := range []bool{
			e.ValueFrom.FieldRef != nil, e.ValueFrom.ResourceFieldRef != nil, e.ValueFrom.ConfigMapKeyRef != nil,
			e.ValueFrom.SecretKeyRef != nil, e.ValueFrom.FileKeyRef != nil,
		} {
			if set {
				sources++
			}
		}
		switch {
		case sources != 1:
			errs = append(errs, field.Invalid(path, "", "must have exactly one source"))
		case e.Value != "":
			errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
		case e.ValueFrom.FieldRef != nil:
			errs = append(errs, validateFieldRef(e.ValueFrom.FieldRef, path.Child("fieldRef"))...)
		case e.ValueFrom.ResourceFieldRef != nil:
			errs = append(errs, validateResourceRef(pod, e.ValueFrom.ResourceFieldRef, path.Child("resourceFieldRef"))...)
		}
	}
	return errs
}

func validateFieldRef(r *corev1.ObjectFieldSelector, path *field.Path) field.ErrorList {
	if r.APIVersion != "v1" {
		return field.ErrorList{field.NotSupported(path.Child("apiVersion"), r.APIVersion, []string{"v1"})}
	}
	path = path.Child("fieldPath")
	if r.FieldPath == "spec.host" { // an old name of spec.nodeName
		return nil
	}
	name, key, ok := subscript(r.FieldPath)
	switch {
	case !ok:
		return oneOf(path, r.FieldPath, fieldPaths()...)
	case name == "metadata.annotations":
		return invalid(path, strings.ToLower(key), validation.IsQualifiedName)
	case name == "metadata.labels":
		return invalid(path, key, validation.IsQualifiedName)
	}
	return field.ErrorList{field.Invalid(path, r.FieldPath, "does not support subscript")}
}

func validateResourceRef(pod *corev1.Pod, r *corev1.ResourceFieldSelector, path *field.Path) field.ErrorList {
	if r.ContainerName != "" && containerNamed(pod, r.ContainerName) == nil {
		return field.ErrorList{field.NotFound(path.Child("containerName"), r.ContainerName)}
	}
	kind, name, _ := strings.Cut(r.Resource, ".")
	if r.Resource == "" || kind != "limits" && kind != "requests" || !isContainerResource(corev1.ResourceName(name)) {
		return oneOf(path.Child("resource"), r.Resource, resourceFields()...)
	}
	if r.Divisor.IsZero() {
		return nil
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if name == string(corev1.ResourceCPU) {
		divisors = []string{"1", "1m"}
	}
	return oneOf(path.Child("divisor"), r.Divisor.String(), divisors...)
}

func validateRestartPolicy(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	rules := path.Child("restartPolicyRules")
	if c.RestartPolicy != nil {
		errs = append(errs, oneOf(path.Child("restartPolicy"), *c.RestartPolicy, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	} else if len(c.RestartPolicyRules) > 0 {
		errs = append(errs, field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i, r := range c.RestartPolicyRules {
		path := rules.Index(i)
		errs = append(errs, oneOf(path.Child("action"), r.Action,
			corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(path.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, oneOf(path.Child("exitCodes", "operator"), r.ExitCodes.Operator,
			corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(r.ExitCodes.Values); n > maxExitCodes {
			errs = append(errs, field.TooMany(path.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
	return errs
}

// validateRequirements checks requests and limits of a container or of the pod.
func validateRequirements(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	limits, requests := path.Child("limits"), path.Child("requests")
	errs := append(validateQuantities(r.Limits, limits), validateQuantities(r.Requests, requests)...)
	hugePages := false
	for _, name := range sorted(r.Requests) {
		hugePages = hugePages || isHugePages(name)
		request, overcommit := r.Requests[name], !isHugePages(name) && !strings.Contains(string(name), "/")
		limit, limited := r.Limits[name]
		switch {
		case !limited && !overcommit:
			errs = append(errs, field.Required(limits.Key(string(name)), "must be set for non overcommitable resources"))
		case limited && !overcommit && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), request.String(), "must be equal to the limit of "+limit.String()))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), request.String(), "must be less than or equal to the limit of "+limit.String()))
		}
	}
	_, cpu := r.Requests[corev1.ResourceCPU]
	_, memory := r.Requests[corev1.ResourceMemory]
	if hugePages && !cpu && !memory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

func validateQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sorted(list) {
		q, path := list[name], path.Key(string(name))
		extended := strings.Contains(string(name), "/")
		errs = append(errs, invalid(path, string(name), validation.IsQualifiedName)...)
		if !extended && !isContainerResource(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg))
		}
		if extended && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
		}
		if isHugePages(name) && !divisible(name, q) {
			errs = append(errs, field.Invalid(path, q.String(), "must be a multiple of the page size"))
		}
	}
	return errs
}

// divisible says whether a quantity is a whole number of huge pages.
func divisible(name corev1.ResourceName, q resource.Quantity) bool {
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	return err == nil && page.Value() > 0 && page.MilliValue()%1000 == 0 && q.Value()%page.Value() == 0
}
