// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podfield"
)

// byName is what the parts of a pod refer to, for checks that look up many. The first of a name counts.
type byName struct {
	containers map[string]podfield.Container
	volumes    map[string]*corev1.Volume
}

func index(spec *corev1.PodSpec) byName {
	x := byName{make(map[string]podfield.Container), make(map[string]*corev1.Volume)}
	for c := range podfield.Containers(spec) {
		if _, ok := x.containers[c.Name]; !ok {
			x.containers[c.Name] = c
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; x.volumes[v.Name] == nil {
			x.volumes[v.Name] = v
		}
	}
	return x
}
