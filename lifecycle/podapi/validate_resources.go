// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/podfield"
	"github.com/seed81659283/nodeagent/internal/quantity"
	"github.com/seed81659283/nodeagent/qos"
)

// validatePodResources checks the pod-level requests and limits, also against those of the containers.
func validatePodResources(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validateQuantities(spec.Overhead, path.Child("overhead"))
	if spec.Resources == nil {
		return errs
	}
	own := path.Child("resources")
	for _, list := range []corev1.ResourceList{spec.Resources.Limits, spec.Resources.Requests} {
		for _, name := range sortedKeys(list) {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !podfield.IsHugePages(name) {
				errs = append(errs, field.NotSupported(own, name, []string{"cpu", "hugepages-", "memory"}))
			}
		}
	}
	errs = append(errs, validateRequirements(spec.Resources, own)...)
	for i := range spec.Containers {
		limits := path.Child("containers").Index(i).Child("resources", "limits")
		for _, name := range sortedKeys(spec.Containers[i].Resources.Limits) {
			limit := spec.Containers[i].Resources.Limits[name]
			if podLimit, ok := spec.Resources.Limits[name]; ok && limit.Cmp(podLimit) > 0 {
				errs = append(errs, field.Invalid(limits.Key(string(name)), limit.String(), "must be less than or equal to the pod's limit of "+podLimit.String()))
			}
		}
	}
	sum := qos.Requests(&corev1.Pod{Spec: *spec}, qos.Options{IgnorePodLevel: true, ExcludeOverhead: true})
	for _, name := range sortedKeys(sum) {
		total := sum[name]
		if podRequest, ok := spec.Resources.Requests[name]; ok && total.Cmp(podRequest) > 0 {
			errs = append(errs, field.Invalid(own.Child("requests").Key(string(name)), podRequest.String(), "must be greater than or equal to the containers' requests of "+total.String()))
		}
	}
	return errs
}

// validateResizePolicy checks the resize policy of a container (KEP-1287), which may only require a restart if that is
// possible.
func validateResizePolicy(pod *corev1.Pod, container podfield.Container) field.ErrorList {
	var errs field.ErrorList
	seen := make(map[corev1.ResourceName]bool)
	for i, p := range container.ResizePolicy {
		path := container.Path.Child("resizePolicy").Index(i)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(path.Child("resourceName"), p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, validateOneOf(path.Child("resourceName"), p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		path = path.Child("restartPolicy")
		errs = append(errs, validateOneOf(path, p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		switch {
		case p.RestartPolicy == corev1.NotRequired:
		case pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be NotRequired when the pod's restartPolicy is Never"))
		case container.Kind == containers.Init && !container.IsSidecar():
			errs = append(errs, field.Invalid(path, p.RestartPolicy, "must be NotRequired for init containers without restartPolicy Always"))
		}
	}
	return errs
}

// validateRequirements checks the requests and limits of a container or pod, such as that no request exceeds its limit.
func validateRequirements(resources *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	limits, requests := path.Child("limits"), path.Child("requests")
	errs := append(validateQuantities(resources.Limits, limits), validateQuantities(resources.Requests, requests)...)
	hugePages := false
	for _, name := range sortedKeys(resources.Requests) {
		hugePages = hugePages || podfield.IsHugePages(name)
		request, overcommit := resources.Requests[name], !podfield.IsHugePages(name) && !strings.Contains(string(name), "/")
		limit, limited := resources.Limits[name]
		switch {
		case !limited && !overcommit:
			errs = append(errs, field.Required(limits.Key(string(name)), "must be set for non overcommitable resources"))
		case limited && !overcommit && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), request.String(), "must be equal to the limit of "+limit.String()))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(requests.Key(string(name)), request.String(), "must be less than or equal to the limit of "+limit.String()))
		}
	}
	_, cpu := resources.Requests[corev1.ResourceCPU]
	_, memory := resources.Requests[corev1.ResourceMemory]
	if hugePages && !cpu && !memory {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

func validateQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sortedKeys(list) {
		q, path := list[name], path.Key(string(name))
		extended := strings.Contains(string(name), "/")
		errs = append(errs, validateWith(path, string(name), validation.IsQualifiedName)...)
		if !extended && !podfield.IsContainerResource(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(path, q.String(), apivalidation.IsNegativeErrorMsg))
		}
		if extended && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(path, q.String(), "must be an integer"))
		}
		if podfield.IsHugePages(name) && !isWholePages(name, q) {
			errs = append(errs, field.Invalid(path, q.String(), "must be a multiple of the page size"))
		}
	}
	return errs
}

// isWholePages reports whether the quantity is a multiple of the page size of a huge page resource, such as 2Mi for
// hugepages-2Mi.
func isWholePages(name corev1.ResourceName, q resource.Quantity) bool {
	size := strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix)
	page, err := quantity.Parse(size)
	return err == nil && page.Value() > 0 && page.MilliValue()%1000 == 0 && q.Value()%page.Value() == 0
}
