// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// What a pod gets on a node: its class, the score of its container, and the limits of its cgroup.
func Example() {
	amount := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "web",
		Resources: corev1.ResourceRequirements{
			Requests: amount("250m", "2Gi"),
			Limits:   amount("1", "4Gi"),
		},
	}}}}
	node := qos.Node{MemoryCapacity: 16 << 30, Reservation: qos.TieredReservation}

	fmt.Println(qos.StatusClass(pod))
	adj, err := qos.OOMScoreAdj(pod, &pod.Spec.Containers[0], node.MemoryCapacity)
	if err != nil {
		panic(err)
	}
	fmt.Println("oom_score_adj", adj)

	limits := cgroups.ForPod(qos.PodResources(pod, node), cgroups.PodOptions{})
	fmt.Println("shares", limits.CPUShares, "quota", limits.CPUQuota, "of", limits.CPUPeriod)
	fmt.Println("memory.low", *limits.MemoryLow, "memory.max", *limits.MemoryMax)
	// Output:
	// Burstable
	// oom_score_adj 875
	// shares 256 quota 100000 of 100000
	// memory.low 2147483648 memory.max 4294967296
}
