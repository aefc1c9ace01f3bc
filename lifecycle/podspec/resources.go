// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// nodeResources returns Options.Node, the properties of the node on which resource settings depend. If Options.Node is nil,
// known is false, and the result yields only settings that every node supports. The caller must then leave the OOM score
// adjustment unset, because it depends on the memory capacity.
func (o Options) nodeResources() (node qos.Node, known bool) {
	if o.Node != nil {
		return *o.Node, true
	}
	return qos.Node{MemoryCapacity: math.MaxInt64, CgroupV1: true, NoSwapController: true}, false
}

// Resources returns the CPU, memory and huge page settings of a container. The result of [Container] includes them. Call
// Resources to resize a running container.
func Resources(pod *corev1.Pod, container *corev1.Container, opts Options) (*cri.Resources, error) {
	n, known := opts.nodeResources()
	r, err := qos.ContainerResources(pod, container, n)
	if err != nil {
		return nil, err
	}
	if !known {
		r.OOMScoreAdj = 0
	}
	return &r, nil
}
