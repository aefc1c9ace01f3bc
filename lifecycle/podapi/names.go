// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podapi

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podfield"
)

// nameIndex has the containers and volumes of a pod by name. If two have the same name, it has the first.
type nameIndex struct {
	containers map[string]podfield.Container
	volumes    map[string]*corev1.Volume
}

func indexNames(spec *corev1.PodSpec) nameIndex {
	x := nameIndex{make(map[string]podfield.Container), make(map[string]*corev1.Volume)}
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
