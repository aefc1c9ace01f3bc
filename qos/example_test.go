// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// The QoS class of a pod, the OOM score adjustment of its container, and the limits of the pod's cgroup.
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
	// The container requests an eighth of the node's memory: 1000 - 125.
	adj, err := qos.OOMScoreAdj(pod, &pod.Spec.Containers[0], node.MemoryCapacity)
	if err != nil {
		panic(err)
	}
	fmt.Println("oom_score_adj", adj)

	limits := cgroups.ForPod(qos.PodResources(pod, node), cgroups.PodOptions{})
	// The request of 250 millicores gives 250×1024/1000 = 256 CPU shares. On cgroup v2 a driver converts them to a
	// cpu.weight. The limit of 1 CPU gives a quota of one period, 100 ms.
	fmt.Println("cpu.shares", limits.CPUShares, "CFS quota", limits.CPUQuota, "of", limits.CPUPeriod, "µs")
	// The request of 2Gi is protected because of TieredReservation; the limit of 4Gi is enforced.
	fmt.Println("memory.low", *limits.MemoryLow, "memory.max", *limits.MemoryMax)
	// Output:
	// Burstable
	// oom_score_adj 875
	// cpu.shares 256 CFS quota 100000 of 100000 µs
	// memory.low 2147483648 memory.max 4294967296
}

// Sort the pods of a node for a drain: node-critical pods are last.
func ExampleIsNodeCritical() {
	newPod := func(name, class string, priority int32) *corev1.Pod {
		pod := &corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: class, Priority: &priority}}
		pod.Name = name
		return pod
	}
	pods := []*corev1.Pod{
		newPod("network", "system-node-critical", 2_000_001_000),
		newPod("dns", "system-cluster-critical", 2_000_000_000),
		newPod("web", "", 0),
	}
	rank := func(pod *corev1.Pod) int {
		switch {
		case qos.IsNodeCritical(pod):
			return 2
		case qos.IsCritical(pod):
			return 1
		default:
			return 0
		}
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
	for _, pod := range pods {
		fmt.Println(pod.Name)
	}
	// Output:
	// web
	// dns
	// network
}
