// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// BenchmarkPlan measures the plan after a pod change on a node of 1,000 pods.
func BenchmarkPlan(b *testing.B) {
	var pods []*corev1.Pod
	for i := range 1000 {
		pods = append(pods, newPod(fmt.Sprint(i), list("cpu", "100m", "memory", "64Mi"), nil))
	}
	o := options()
	b.ReportAllocs()
	for b.Loop() {
		podtree.Plan(o, pods, true)
	}
}
