// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"maps"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/qos"
)

// FuzzPod compares the results for a pod built from the input with independent implementations, which use maps of fractions.
// The pod must not be modified.
func FuzzPod(f *testing.F) {
	f.Add([]byte("requests and limits of a pod with init containers and sidecars"))
	f.Add([]byte{})
	for i := range 64 {
		seed := make([]byte, 96)
		for j := range seed {
			seed[j] = byte(i*31 + j*j*7 + i*j*13)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := maker(data)
		pod := m.pod()
		before := pod.DeepCopy()
		compare(t, pod)
		require.True(t, sameText(t, before, pod), "the pod is not modified")
	})
}

func compare(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	require.Equal(t, expectedClass(pod), qos.Class(pod))
	for _, o := range []qos.Options{{}, {ExcludeOverhead: true}, {IgnorePodLevel: true}} {
		requireSame(t, expectedTotals(pod, o, false), qos.Requests(pod, o))
		requireSame(t, expectedTotals(pod, o, true), qos.Limits(pod, o))
	}
	requests, limits := qos.Requests(pod, qos.Options{}), qos.Limits(pod, qos.Options{})
	require.Equal(t, roundUp(requests[corev1.ResourceCPU], 1000), qos.CPURequest(pod))
	require.Equal(t, roundUp(requests[corev1.ResourceMemory], 1), qos.MemoryRequest(pod))
	cpu, _ := qos.CPULimit(pod)
	require.Equal(t, roundUp(limits[corev1.ResourceCPU], 1000), cpu)
	memory, _ := qos.MemoryLimit(pod)
	require.Equal(t, roundUp(limits[corev1.ResourceMemory], 1), memory)
	for i := range pod.Spec.Containers {
		adj, err := qos.OOMScoreAdj(pod, &pod.Spec.Containers[i], 16<<30)
		require.NoError(t, err)
		switch qos.Class(pod) {
		case corev1.PodQOSGuaranteed:
			require.Equal(t, -997, adj)
		case corev1.PodQOSBestEffort:
			require.Equal(t, 1000, adj)
		default:
			require.True(t, adj >= 3 && adj <= 999, "%d", adj)
		}
	}
}

// Modifying a returned list does not modify the pod, even if a quantity is too big for an int64.
func TestRequestsAndLimitsShareNoMemoryWithPod(t *testing.T) {
	pod := podOf(container([]string{"a", "cpu=1.5Gi/1.5Gi", "example.com/x=100000E/100000E"}))
	pod.Spec.InitContainers = []corev1.Container{container([]string{"i", "cpu=2.5Gi/2.5Gi"})}
	pod.Spec.Overhead = amounts([]string{"cpu=0.1Gi", "memory=1.5Gi"}).Requests
	levelled, running := pod.DeepCopy(), pod.DeepCopy()
	levelled.Spec.Resources = new(amounts([]string{"cpu=1.5Gi/1.5Gi"}))
	running.Status.AllocatedResources = amounts([]string{"cpu=3.5Gi"}).Requests
	running.Status.Resources = new(amounts([]string{"cpu=2.5Gi/3.5Gi", "memory=0.5Gi/0.5Gi"}))
	for _, pod := range []*corev1.Pod{pod, levelled, running} {
		before := pod.DeepCopy()
		for _, list := range []corev1.ResourceList{
			qos.Requests(pod, qos.Options{}), qos.Limits(pod, qos.Options{}),
			qos.Requests(pod, qos.Options{UseStatus: true}), qos.Limits(pod, qos.Options{UseStatus: true}),
		} {
			for name, q := range list {
				q.Add(q.DeepCopy())
				list[name] = q
			}
		}
		q := qos.Request(pod, corev1.ResourceCPU)
		q.Add(q.DeepCopy())
		require.True(t, sameText(t, before, pod))
	}
}

func sameText(t *testing.T, a, b *corev1.Pod) bool {
	t.Helper()
	x, err := a.Marshal()
	require.NoError(t, err)
	y, err := b.Marshal()
	require.NoError(t, err)
	return string(x) == string(y)
}

// maker builds a pod from bytes, followed by zeros.
type maker []byte

func (m *maker) pick(n int) int {
	if len(*m) == 0 {
		return 0
	}
	b := int((*m)[0])
	*m = (*m)[1:]
	return b % n
}

func (m *maker) quantity() resource.Quantity {
	texts := [...]string{
		"0", "1", "100m", "1.5Gi", "128Mi", "1536Mi", "1Gi", "2", "1000m", "0.5", "1n", "100u", "9223372036854775807", "10P", "9E", "8Ei",
		"100E", "12345678901234567890123", "1e3", "1k", "0m", "3.3Ki", "999999999999m", "1e40",
	}
	q := resource.MustParse(texts[m.pick(len(texts))])
	for range m.pick(4) / 3 { // sums have another internal representation than parsed quantities
		q.Add(q.DeepCopy())
	}
	return q
}

func (m *maker) list() corev1.ResourceList {
	names := [...]corev1.ResourceName{"cpu", "memory", "cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"}
	var list corev1.ResourceList
	for range m.pick(5) {
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[names[m.pick(len(names))]] = m.quantity()
	}
	return list
}

func (m *maker) resources() corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: m.list()}
	if m.pick(3) == 0 {
		r.Limits = r.Requests.DeepCopy()
	} else {
		r.Limits = m.list()
	}
	return r
}

func (m *maker) pod() *corev1.Pod {
	pod := podOf()
	for i := range m.pick(4) {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c" + string(rune('0'+i)), Resources: m.resources()})
	}
	for i := range m.pick(4) {
		c := corev1.Container{Name: "i" + string(rune('0'+i)), Resources: m.resources()}
		if m.pick(2) == 1 {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	if m.pick(4) == 1 {
		pod.Spec.Resources = new(m.resources())
	}
	if m.pick(4) == 1 {
		pod.Spec.Overhead = m.list()
	}
	return pod
}

// rat returns the value of a quantity as a fraction, parsed from its text.
func rat(q resource.Quantity) *big.Rat {
	r, ok := new(big.Rat).SetString(q.AsDec().String())
	if !ok {
		panic(q.String())
	}
	return r
}

// roundUp returns q in units of 1/units, rounded up, at most the largest int64.
func roundUp(q resource.Quantity, units int64) int64 {
	r := rat(q.DeepCopy())
	r.Mul(r, new(big.Rat).SetInt64(units))
	v, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() != 0 {
		v.Add(v, big.NewInt(1))
	}
	if !v.IsInt64() {
		return math.MaxInt64
	}
	return v.Int64()
}

type rats map[corev1.ResourceName]*big.Rat

func ratsOf(list corev1.ResourceList) rats {
	out := rats{}
	for name, q := range list {
		out[name] = rat(q.DeepCopy())
	}
	return out
}

func (a rats) plus(b rats) rats {
	out := maps.Clone(a)
	for name, x := range b {
		if y, ok := out[name]; ok {
			x = new(big.Rat).Add(x, y)
		}
		out[name] = x
	}
	return out
}

func (a rats) max(b rats) rats {
	out := maps.Clone(a)
	for name, x := range b {
		if y, ok := out[name]; !ok || x.Cmp(y) > 0 {
			out[name] = x
		}
	}
	return out
}

// expectedTotals computes requests or limits independently of the package. It visits the containers in their start order: each
// init container with the sidecars started before it, then all containers that keep running.
func expectedTotals(pod *corev1.Pod, o qos.Options, limits bool) rats {
	pick := func(r corev1.ResourceRequirements) rats {
		if limits {
			return ratsOf(r.Limits)
		}
		return ratsOf(r.Requests)
	}
	staying, peak := rats{}, rats{}
	for _, c := range pod.Spec.InitContainers {
		now := staying.plus(pick(c.Resources))
		if c.RestartPolicy != nil {
			staying = now
		}
		peak = peak.max(now)
	}
	for _, c := range pod.Spec.Containers {
		staying = staying.plus(pick(c.Resources))
	}
	total := peak.max(staying)
	if pod.Spec.Resources != nil && !o.IgnorePodLevel {
		for name, x := range pick(*pod.Spec.Resources) {
			if name == "cpu" || name == "memory" || name == "hugepages-2Mi" {
				total[name] = x
			}
		}
	}
	if !o.ExcludeOverhead {
		for name, x := range ratsOf(pod.Spec.Overhead) {
			if y, ok := total[name]; !limits || ok && y.Sign() != 0 {
				total = total.plus(rats{name: x})
			}
		}
	}
	return total
}

func requireSame(t *testing.T, want rats, got corev1.ResourceList) {
	t.Helper()
	require.Len(t, got, len(want))
	for name, x := range want {
		q, ok := got[name]
		require.True(t, ok, name)
		require.Zero(t, x.Cmp(rat(q.DeepCopy())), "%s: want %s, got %s", name, x, q.String())
	}
}

// expectedClass computes the QoS class independently of the package: it checks each container for guaranteed resources, and for
// any request or limit.
func expectedClass(pod *corev1.Pod) corev1.PodQOSClass {
	var blocks []corev1.ResourceRequirements
	for _, c := range append(append([]corev1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...) {
		blocks = append(blocks, c.Resources)
	}
	if r := pod.Spec.Resources; r != nil {
		for _, name := range []corev1.ResourceName{"cpu", "memory", "hugepages-2Mi"} {
			_, request := r.Requests[name]
			_, limit := r.Limits[name]
			if request || limit {
				blocks = []corev1.ResourceRequirements{*r}
			}
		}
	}
	guaranteed, bestEffort := len(blocks) > 0, true
	for _, r := range blocks {
		for _, name := range []corev1.ResourceName{"cpu", "memory"} {
			request, limit := rat(r.Requests[name]), rat(r.Limits[name])
			guaranteed = guaranteed && request.Sign() != 0 && request.Cmp(limit) == 0
			bestEffort = bestEffort && request.Sign() == 0 && limit.Sign() == 0
		}
	}
	switch {
	case guaranteed:
		return corev1.PodQOSGuaranteed
	case bestEffort:
		return corev1.PodQOSBestEffort
	default:
		return corev1.PodQOSBurstable
	}
}
