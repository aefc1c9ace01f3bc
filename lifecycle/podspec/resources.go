// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cri"
)

// The bounds of the kernel's CPU controller (pkg/kubelet/cm/helpers_linux.go).
const (
	minShares = 2
	maxShares = 262144
	minQuota  = 1000 // microseconds
)

// containerResources returns what a container may use. A limit that it lacks is that of the pod, if the pod has one;
// a CPU request that it lacks is its CPU limit.
func containerResources(pod *corev1.Pod, c *corev1.Container, path *field.Path, o Options) (*cri.Resources, error) {
	limit := func(name corev1.ResourceName) resource.Quantity {
		q := c.Resources.Limits[name]
		if q.IsZero() && pod.Spec.Resources != nil {
			q = pod.Spec.Resources.Limits[name]
		}
		return q
	}
	cpu := limit(corev1.ResourceCPU)
	request, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		request = cpu
	}
	r := linuxResources(request, cpu, limit(corev1.ResourceMemory), o)
	var err error
	r.HugepageLimits, err = hugepageLimits(pod, c, path.Child("limits"), o)
	return r, err
}

// podResources returns the sum over the containers, or what the pod states for itself. The kubelet sums the limits
// of those containers that have one, although the others make the pod unlimited.
func podResources(pod *corev1.Pod, o Options) *cri.Resources {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pod.Spec.Containers {
		add(requests, pod.Spec.Containers[i].Resources.Requests)
		add(limits, pod.Spec.Containers[i].Resources.Limits)
	}
	if r := pod.Spec.Resources; r != nil {
		maps.Copy(requests, r.Requests)
		maps.Copy(limits, r.Limits)
	}
	request, ok := requests[corev1.ResourceCPU]
	if !ok {
		request = limits[corev1.ResourceCPU]
	}
	return linuxResources(request, limits[corev1.ResourceCPU], limits[corev1.ResourceMemory], o)
}

// overhead returns what the pod costs beside its containers, as both request and limit; nil where it is not stated.
func overhead(pod *corev1.Pod, o Options) *cri.Resources {
	if pod.Spec.Overhead == nil {
		return nil
	}
	cpu := pod.Spec.Overhead[corev1.ResourceCPU]
	return linuxResources(cpu, cpu, pod.Spec.Overhead[corev1.ResourceMemory], o)
}

func add(sum, list corev1.ResourceList) {
	for name, q := range list {
		total := sum[name].DeepCopy()
		total.Add(q)
		sum[name] = total
	}
}

func linuxResources(cpuRequest, cpuLimit, memoryLimit resource.Quantity, o Options) *cri.Resources {
	r := &cri.Resources{
		CPUShares:   min(max(cpuRequest.MilliValue()*1024/1000, minShares), maxShares),
		MemoryLimit: memoryLimit.Value(),
	}
	if o.NoCPUQuota {
		return r
	}
	r.CPUPeriod = cmp.Or(o.CPUPeriod, DefaultCPUPeriod).Microseconds()
	if milli := cpuLimit.MilliValue(); milli != 0 {
		r.CPUQuota = max(milli*r.CPUPeriod/time.Second.Milliseconds(), minQuota)
	}
	return r
}

// hugepageLimits lists a limit for every page size of the node and for every one that is asked for.
func hugepageLimits(pod *corev1.Pod, c *corev1.Container, path *field.Path, o Options) ([]cri.HugepageLimit, error) {
	limits := make(map[string]uint64)
	for _, size := range o.HugePageSizes {
		limits[size] = 0
	}
	lists := []corev1.ResourceList{c.Resources.Limits}
	if pod.Spec.Resources != nil {
		lists = []corev1.ResourceList{pod.Spec.Resources.Limits, c.Resources.Limits}
	}
	for _, list := range lists {
		for _, name := range sorted(list) {
			if !isHugePages(name) {
				continue
			}
			size, ok := hugepageSize(name)
			if !ok || len(o.HugePageSizes) > 0 && !slices.Contains(o.HugePageSizes, size) {
				return nil, field.NotSupported(path.Key(string(name)), size, o.HugePageSizes)
			}
			q := list[name]
			limits[size] = uint64(max(q.Value(), 0))
		}
	}
	var listed []cri.HugepageLimit
	for _, size := range sorted(limits) {
		listed = append(listed, cri.HugepageLimit{PageSize: size, Limit: limits[size]})
	}
	return listed, nil
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// hugepageSize turns the resource hugepages-2Mi into the 2MB of cgroup file names.
func hugepageSize(name corev1.ResourceName) (string, bool) {
	q, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
	size, units := q.Value(), []string{"B", "KB", "MB", "GB", "TB", "PB"}
	if err != nil || size <= 0 {
		return "", false
	}
	unit := 0
	for ; size%1024 == 0 && unit < len(units)-1; unit++ {
		size /= 1024
	}
	return strconv.FormatInt(size, 10) + units[unit], true
}

// isContainerResource says whether a resource is one of those that Kubernetes itself gives to containers.
func isContainerResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return isHugePages(name)
}
