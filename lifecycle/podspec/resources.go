// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// nodeResources returns Options.Node. If it is nil, known is false, and the result yields only settings that do not depend on the
// node: none that cgroup v1 lacks, and no OOM score adjustment, which depends on the memory capacity.
func (o Options) nodeResources() (node qos.Node, known bool) {
	if o.Node != nil {
		return *o.Node, true
	}
	return qos.Node{MemoryCapacity: math.MaxInt64, CgroupV1: true, NoSwapController: true}, false
}

// Resources returns the CPU, memory and huge page settings of a container. [Container] includes them; a resize of a running
// container needs them alone.
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
