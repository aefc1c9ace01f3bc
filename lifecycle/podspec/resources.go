// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// nodeResources returns the node data in Options.Node, on which resource settings depend. If that is nil, known is false, and
// node is a substitute: only settings that every node supports result from it. The OOM score adjustment depends on the memory
// capacity, so the caller must then discard it.
func (o Options) nodeResources() (node qos.Node, known bool) {
	if o.Node != nil {
		return *o.Node, true
	}
	return qos.Node{MemoryCapacity: math.MaxInt64, CgroupV1: true, NoSwapController: true}, false
}

// Resources returns the CPU, memory and huge page settings of a container. [Container] includes them in its result. A resize of a
// running container needs only them.
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
