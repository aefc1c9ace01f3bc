// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// nodeResources returns the node's properties on which resource settings depend. If they are unknown, it returns properties that
// only allow settings which every node supports.
func (o Options) nodeResources() (node qos.Node, known bool) {
	if o.Node != nil {
		return *o.Node, true
	}
	// The OOM score adjustment depends on the memory capacity: the caller leaves it unset.
	return qos.Node{MemoryCapacity: math.MaxInt64, CgroupV1: true, NoSwapController: true}, false
}

// SandboxResources returns the resources of a pod's sandbox, and its overhead or nil. The result of [Sandbox] includes them. Call
// SandboxResources to resize a running pod: it reads no file, no name server and no runtime class.
func SandboxResources(pod *corev1.Pod, opts Options) (resources, overhead *cri.Resources) {
	node, _ := opts.nodeResources()
	return qos.SandboxResources(pod, node)
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
