// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
)

// buildHugepageLimits returns the container's limits of huge pages by page size: its own, those of the pod, or zero. Source:
// GetHugepageLimitsFromResources in pkg/kubelet/kuberuntime.
func buildHugepageLimits(pod *corev1.Pod, container *corev1.Container, node Node) ([]cri.HugepageLimit, error) {
	var limits []cri.HugepageLimit
	for _, size := range node.HugepageSizes {
		limits = append(limits, cri.HugepageLimit{PageSize: size})
	}
	if pod.Spec.Resources != nil {
		path := field.NewPath("spec", "resources", "limits")
		if err := node.setHugepageLimits(&limits, pod.Spec.Resources.Limits, path); err != nil {
			return nil, err
		}
	}
	path := containerFieldPath(pod, container.Name).Child("resources", "limits")
	if err := node.setHugepageLimits(&limits, container.Resources.Limits, path); err != nil {
		return nil, err
	}
	if node.NoHugetlbController {
		return nil, nil
	}
	slices.SortFunc(limits, func(a, b cri.HugepageLimit) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return limits, nil
}

// setHugepageLimits copies the amounts of huge pages in list to limits. It returns an error for the field path if a page size is
// invalid or missing on the node.
func (n Node) setHugepageLimits(limits *[]cri.HugepageLimit, list corev1.ResourceList, path *field.Path) error {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if !isHugepages(name) {
			continue
		}
		bytes, _ := parseHugepageSize(name)
		size := cgroups.HugepageSize(bytes)
		if size == "" {
			return field.Invalid(path, string(name), "not the name of a page size, such as hugepages-2Mi")
		}
		if n.HugepageSizes != nil && !slices.Contains(n.HugepageSizes, size) {
			return field.NotSupported(path.Key(string(name)), size, n.HugepageSizes)
		}
		i := slices.IndexFunc(*limits, func(l cri.HugepageLimit) bool { return l.PageSize == size })
		if i < 0 {
			i = len(*limits)
			*limits = append(*limits, cri.HugepageLimit{PageSize: size})
		}
		q := list[name]
		(*limits)[i].Limit = uint64(max(Value(&q), 0))
	}
	return nil
}

// containerFieldPath returns the field path of the container with this name, for example spec.containers[0].
func containerFieldPath(pod *corev1.Pod, name string) *field.Path {
	spec := field.NewPath("spec")
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return spec.Child("containers").Index(i)
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return spec.Child("initContainers").Index(i)
		}
	}
	return spec.Child("ephemeralContainers").Key(name)
}
