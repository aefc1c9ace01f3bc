// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

// node returns how resources become limits. Of a node that is not known a container gets only what does not depend on
// it: nothing that cgroup v1 lacks, and no OOM score, which needs the memory of the machine.
func (o Options) nodeResources() (n qos.Node, known bool) {
	if o.Node != nil {
		return *o.Node, true
	}
	return qos.Node{MemoryCapacity: math.MaxInt64, CgroupV1: true, NoSwapController: true}, false
}

// Resources returns what a container may use. It is in the config that [Container] returns, and is asked for by itself
// where a container that runs is to have other resources than it was made with.
func Resources(pod *corev1.Pod, c *corev1.Container, o Options) (*cri.Resources, error) {
	n, known := o.nodeResources()
	r, err := qos.ContainerResources(pod, c, n)
	if err != nil {
		return nil, err
	}
	if !known {
		r.OOMScoreAdj = 0
	}
	return &r, nil
}
