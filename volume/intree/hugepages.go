// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/quantity"
)

// isHugePages reports whether the medium of an emptyDir is huge pages: "HugePages", or "HugePages-" with a page size.
func isHugePages(medium corev1.StorageMedium) bool {
	return medium == corev1.StorageMediumHugePages || strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
}

// pageSize returns the huge page size in bytes for an emptyDir of this medium: that of the medium, or the only one of the pod.
// The pod must request such pages.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	asked := map[int64]bool{}
	add := func(list corev1.ResourceList) {
		for name := range list {
			text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
			if !ok {
				continue
			}
			if q, err := quantity.Parse(text); err == nil && q.Sign() > 0 {
				asked[q.Value()] = true
			}
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Requests)
	}
	for c := range containers.NotEphemeral(&pod.Spec) {
		add(c.Resources.Requests)
	}
	text, sized := strings.CutPrefix(string(medium), string(corev1.StorageMediumHugePagesPrefix))
	switch {
	case sized:
		q, err := quantity.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("medium %.64q: not a size: %w", medium, err)
		}
		if !asked[q.Value()] {
			return 0, fmt.Errorf("medium %.64s: hugePages storage requested, but there is no resource request for huge pages", medium)
		}
		return q.Value(), nil
	case len(asked) == 0:
		return 0, errors.New("medium HugePages: hugePages storage requested, but there is no resource request for huge pages")
	case len(asked) > 1:
		return 0, errors.New("medium: HugePages can't be used if container requests multiple huge page sizes")
	}
	for size := range asked {
		return size, nil
	}
	return 0, nil
}
