// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/qos"
)

// usualPods returns typical pods: web servers, a database, a job, a pod with a sidecar, and one without requests.
func usualPods() map[string]*corev1.Pod {
	sidecar := podOf(container([]string{"app", "cpu=500m", "memory=512Mi"}))
	sidecar.Spec.InitContainers = []corev1.Container{
		container([]string{"migrate", "cpu=1/1", "memory=1Gi/1Gi"}), container([]string{"mesh", "cpu=100m", "memory=64Mi/128Mi"}),
	}
	sidecar.Spec.InitContainers[1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	overhead := podOf(container([]string{"app", "cpu=1/2", "memory=1Gi/2Gi", "ephemeral-storage=1Gi/2Gi"}))
	overhead.Spec.Overhead = amounts([]string{"cpu=250m", "memory=120Mi"}).Requests
	level := podOf(container([]string{"a", "cpu=100m", "memory=64Mi"}), container([]string{"b"}))
	level.Spec.Resources = new(amounts([]string{"cpu=1/2", "memory=1Gi/2Gi"}))
	return map[string]*corev1.Pod{
		"empty":      podOf(container([]string{"a"})),
		"burstable":  podOf(container([]string{"a", "cpu=100m", "memory=128Mi/256Mi"})),
		"guaranteed": podOf(container([]string{"a", "cpu=1/1", "memory=2Gi/2Gi"}), container([]string{"b", "cpu=500m/500m", "memory=1Gi/1Gi"})),
		"fractions":  podOf(container([]string{"a", "cpu=0.5/500m", "memory=1.5Gi/2Gi"}), container([]string{"b", "cpu=500m/1", "memory=1Gi/1.5Gi"})),
		"sidecar":    sidecar,
		"overhead":   overhead,
		"pod level":  level,
	}
}

// numberFuncs are the functions of a pod that return a number.
var numberFuncs = map[string]func(*corev1.Pod) int64{
	"Class":         func(p *corev1.Pod) int64 { return int64(len(qos.Class(p))) },
	"StatusClass":   func(p *corev1.Pod) int64 { return int64(len(qos.StatusClass(p))) },
	"IsCritical":    func(p *corev1.Pod) int64 { return map[bool]int64{true: 1}[qos.IsCritical(p)] },
	"CPURequest":    qos.CPURequest,
	"MemoryRequest": qos.MemoryRequest,
	"CPULimit":      func(p *corev1.Pod) int64 { v, _ := qos.CPULimit(p); return v },
	"MemoryLimit":   func(p *corev1.Pod) int64 { v, _ := qos.MemoryLimit(p); return v },
	"OOMScoreAdj": func(p *corev1.Pod) int64 {
		adj, _ := qos.OOMScoreAdj(p, &p.Spec.Containers[0], 16<<30)
		return int64(adj)
	},
	"SwapLimit": func(p *corev1.Pod) int64 {
		v, _ := qos.SwapLimit(p, &p.Spec.Containers[0], qos.Node{MemoryCapacity: 16 << 30, SwapCapacity: 1 << 30, Swap: qos.LimitedSwap})
		return v
	},
}

func TestNumberFunctionsDoNotAllocate(t *testing.T) {
	for name, number := range numberFuncs {
		for kind, pod := range usualPods() {
			if kind == "fractions" && (name == "MemoryRequest" || name == "MemoryLimit") {
				continue // a sum with a fraction of a binary unit is a big number, which allocates
			}
			allocs := testing.AllocsPerRun(100, func() { sink = number(pod) })
			assert.Zero(t, allocs, "%s of a %s pod", name, kind)
		}
	}
}

var (
	sink          int64
	sinkList      corev1.ResourceList
	sinkResources cgroups.PodResources
)

func BenchmarkNumbers(b *testing.B) {
	for name, number := range numberFuncs {
		b.Run(name, func(b *testing.B) {
			benchmark(b, func(pod *corev1.Pod) { sink = number(pod) })
		})
	}
}

func BenchmarkRequests(b *testing.B) {
	benchmark(b, func(pod *corev1.Pod) { sinkList = qos.Requests(pod, qos.Options{}) })
}

func BenchmarkLimits(b *testing.B) {
	benchmark(b, func(pod *corev1.Pod) { sinkList = qos.Limits(pod, qos.Options{}) })
}

func BenchmarkPodResources(b *testing.B) {
	benchmark(b, func(pod *corev1.Pod) { sinkResources = qos.PodResources(pod, qos.Node{}) })
}

func benchmark(b *testing.B, f func(*corev1.Pod)) {
	b.Helper()
	for kind, pod := range usualPods() {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f(pod)
			}
		})
	}
}
