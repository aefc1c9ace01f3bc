// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package qos_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/qos"
)

const mib = 1 << 20

// v1 is a node whose containers get only CPU, memory, OOM score and hugepage settings.
var v1 = qos.Node{MemoryCapacity: 16 << 30, CgroupV1: true, NoSwapController: true}

func podOf(containers ...corev1.Container) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
	pod.Name = "p"
	return pod
}

func TestContainerResources(t *testing.T) {
	for name, c := range map[string]struct {
		container, pod []string // amounts
		node           func(*qos.Node)
		want           cri.Resources
	}{
		"no requests":   {want: cri.Resources{CPUShares: 2, CPUPeriod: 100000, OOMScoreAdj: 1000}},
		"one millicore": {container: []string{"cpu=1m"}, want: cri.Resources{CPUShares: 2, CPUPeriod: 100000, OOMScoreAdj: 999}},
		"request":       {container: []string{"cpu=250m"}, want: cri.Resources{CPUShares: 256, CPUPeriod: 100000, OOMScoreAdj: 999}},
		"zero request with a limit": {
			container: []string{"cpu=0/1"},
			want:      cri.Resources{CPUShares: 2, CPUQuota: 100000, CPUPeriod: 100000, OOMScoreAdj: 999},
		},
		"limit": {
			container: []string{"cpu=/500m", "memory=/1Mi"},
			want:      cri.Resources{CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, MemoryLimit: mib, OOMScoreAdj: 999},
		},
		"guaranteed": {
			container: []string{"cpu=1/1", "memory=1Mi/1Mi"},
			want:      cri.Resources{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, MemoryLimit: mib, OOMScoreAdj: -997},
		},
		"minimum quota":  {container: []string{"cpu=/5m"}, want: cri.Resources{CPUShares: 5, CPUQuota: 1000, CPUPeriod: 100000, OOMScoreAdj: 999}},
		"maximum shares": {container: []string{"cpu=1000"}, want: cri.Resources{CPUShares: 262144, CPUPeriod: 100000, OOMScoreAdj: 999}},
		"CPU period of 5 ms": {
			container: []string{"cpu=/1"}, node: func(n *qos.Node) { n.CPUPeriod = 5 * time.Millisecond },
			want: cri.Resources{CPUShares: 1024, CPUQuota: 5000, CPUPeriod: 5000, OOMScoreAdj: 999},
		},
		"no quota": {
			container: []string{"cpu=/1"}, node: func(n *qos.Node) { n.NoCPUQuota = true },
			want: cri.Resources{CPUShares: 1024, OOMScoreAdj: 999},
		},
		"pod limit": {
			pod:  []string{"cpu=/2", "memory=/2Mi"},
			want: cri.Resources{CPUShares: 2048, CPUQuota: 200000, CPUPeriod: 100000, MemoryLimit: 2 * mib, OOMScoreAdj: 999},
		},
		"container request and pod limit": {
			container: []string{"cpu=1"}, pod: []string{"cpu=/2"},
			want: cri.Resources{CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000, OOMScoreAdj: 999},
		},
		"container limit below pod limit": {
			container: []string{"cpu=/1"}, pod: []string{"cpu=/2"},
			want: cri.Resources{CPUShares: 1024, CPUQuota: 100000, CPUPeriod: 100000, OOMScoreAdj: 999},
		},
		"swap on cgroup v1": {
			container: []string{"memory=/1Mi"}, node: func(n *qos.Node) { n.NoSwapController = false },
			want: cri.Resources{CPUShares: 2, CPUPeriod: 100000, MemoryLimit: mib, SwapLimit: mib, OOMScoreAdj: 999},
		},
		"cgroup v2": {
			container: []string{"memory=/1Mi"}, node: func(n *qos.Node) { n.CgroupV1, n.NoSwapController = false, false },
			want: cri.Resources{CPUShares: 2, CPUPeriod: 100000, MemoryLimit: mib, OOMScoreAdj: 999, Unified: map[string]string{
				"memory.min": "0", "memory.low": "0", "memory.swap.max": "0", "memory.oom.group": "1",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod, n := podOf(container(append([]string{"c"}, c.container...))), v1
			if c.pod != nil {
				pod.Spec.Resources = new(amounts(c.pod))
			}
			if c.node != nil {
				c.node(&n)
			}
			r, err := qos.ContainerResources(pod, &pod.Spec.Containers[0], n)
			require.NoError(t, err)
			assert.Empty(t, gocmp.Diff(c.want, r))
		})
	}
}

func TestContainerResourcesHugepageLimits(t *testing.T) {
	limits := func(t *testing.T, sizes, container1, pod1 []string) ([]cri.HugepageLimit, error) {
		pod, n := podOf(container(append([]string{"c"}, container1...))), v1
		pod.Spec.Resources = new(amounts(pod1))
		n.HugepageSizes = sizes
		r, err := qos.ContainerResources(pod, &pod.Spec.Containers[0], n)
		return r.HugepageLimits, err
	}
	host := []string{"2MB", "1GB"}
	for name, c := range map[string]struct {
		sizes, container, pod []string
		want                  []cri.HugepageLimit
	}{
		"no sizes":                {},
		"no limits on known host": {sizes: host, want: []cri.HugepageLimit{{PageSize: "1GB"}, {PageSize: "2MB"}}},
		"one limit on known host": {sizes: host, container: []string{"hugepages-2Mi=/4Mi"}, want: []cri.HugepageLimit{{PageSize: "1GB"}, {PageSize: "2MB", Limit: 4 * mib}}},
		"pod limit":               {sizes: host[:1], pod: []string{"hugepages-2Mi=/4Mi"}, want: []cri.HugepageLimit{{PageSize: "2MB", Limit: 4 * mib}}},
		"below the pod limit":     {sizes: host[:1], container: []string{"hugepages-2Mi=/2Mi"}, pod: []string{"hugepages-2Mi=/4Mi"}, want: []cri.HugepageLimit{{PageSize: "2MB", Limit: 2 * mib}}},
		"limit on unknown host":   {container: []string{"hugepages-2Mi=/4Mi"}, want: []cri.HugepageLimit{{PageSize: "2MB", Limit: 4 * mib}}},
		"one size twice":          {container: []string{"hugepages-2048Ki=/2Mi", "hugepages-2Mi=/4Mi"}, want: []cri.HugepageLimit{{PageSize: "2MB", Limit: 4 * mib}}},
		"request without limit":   {container: []string{"hugepages-2Mi=4Mi"}},
		"negative limit":          {container: []string{"hugepages-2Mi=/-1"}, want: []cri.HugepageLimit{{PageSize: "2MB"}}},
		"unusual page size":       {container: []string{"hugepages-512=/1Ki"}, want: []cri.HugepageLimit{{PageSize: "512B", Limit: 1024}}},
		"other resources":         {sizes: host[:1], container: []string{"cpu=1", "example.com/gpu=/1"}, want: []cri.HugepageLimit{{PageSize: "2MB"}}},
		"ephemeral storage only":  {container: []string{"ephemeral-storage=/1Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := limits(t, c.sizes, c.container, c.pod)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	for name, c := range map[string]struct {
		sizes, container, pod []string
		want                  string
	}{
		"invalid size":     {container: []string{"hugepages-many=/1"}, want: `spec.containers[0].resources.limits: Invalid value: "hugepages-many": not the name of a page size, such as hugepages-2Mi`},
		"long size":        {container: []string{"hugepages-1e-2000000000=/1"}, want: `spec.containers[0].resources.limits: Invalid value: "hugepages-1e-2000000000": not the name of a page size, such as hugepages-2Mi`},
		"uneven size":      {container: []string{"hugepages-3M=/1"}, want: `spec.containers[0].resources.limits: Invalid value: "hugepages-3M": not the name of a page size, such as hugepages-2Mi`},
		"size not on host": {sizes: []string{"2MB"}, container: []string{"hugepages-1Gi=/1Gi"}, want: `spec.containers[0].resources.limits[hugepages-1Gi]: Unsupported value: "1GB": supported values: "2MB"`},
		"no sizes on host": {sizes: []string{}, pod: []string{"hugepages-1Gi=/1Gi"}, want: `spec.resources.limits[hugepages-1Gi]: Unsupported value: "1GB"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := limits(t, c.sizes, c.container, c.pod)
			require.EqualError(t, err, c.want)
			assert.IsType(t, (*field.Error)(nil), err)
		})
	}
}

// The error names the container by its index in the pod.
func TestHugepageErrorNamesFieldOfContainer(t *testing.T) {
	c := container([]string{"x", "hugepages-many=/1"})
	pod := podOf(corev1.Container{Name: "c"})
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, c}
	_, err := qos.ContainerResources(pod, &pod.Spec.InitContainers[1], v1)
	require.ErrorContains(t, err, "spec.initContainers[1].resources.limits: ")

	pod = podOf(corev1.Container{Name: "c"})
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(c)}}
	_, err = qos.ContainerResources(pod, &c, v1)
	require.ErrorContains(t, err, "spec.ephemeralContainers[x].resources.limits: ")
}

func TestContainerResourcesRejectsMissingInput(t *testing.T) {
	pod := podOf(corev1.Container{Name: "c"})
	_, err := qos.ContainerResources(pod, nil, v1)
	require.EqualError(t, err, `score a container of pod "p": container is nil`)
	_, err = qos.ContainerResources(pod, &pod.Spec.Containers[0], qos.Node{})
	require.EqualError(t, err, `score container "c": memory capacity is 0 bytes`)
}

func TestSandboxResources(t *testing.T) {
	pod := podOf(container([]string{"a", "cpu=/1", "memory=/64Mi"}), container([]string{"b", "cpu=/1", "memory=/64Mi"}), container([]string{"unlimited"}))
	pod.Spec.Overhead = amounts([]string{"cpu=100m", "memory=1Mi"}).Requests
	resources, overhead := qos.SandboxResources(pod, v1)
	assert.Equal(t, &cri.Resources{CPUShares: 2048, CPUQuota: 200000, CPUPeriod: 100000, MemoryLimit: 128 * mib}, resources)
	assert.Equal(t, &cri.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryLimit: mib}, overhead)

	pod.Spec.Resources = new(amounts([]string{"cpu=1", "memory=/1Gi"}))
	pod.Spec.Overhead = nil
	resources, overhead = qos.SandboxResources(pod, qos.Node{})
	assert.Equal(t, &cri.Resources{
		CPUShares: 1024, CPUQuota: 200000, CPUPeriod: 100000, MemoryLimit: 1 << 30, Unified: map[string]string{"memory.oom.group": "1"},
	}, resources)
	assert.Nil(t, overhead)
}

func TestPodResources(t *testing.T) {
	pod := podOf(container([]string{"a", "cpu=1/2", "memory=1Mi/2Mi", "hugepages-2Mi=2Mi/2Mi", "hugepages-2048Ki=2Mi/2Mi", "hugepages-many=1"}))
	pod.Spec.Overhead = amounts([]string{"cpu=100m"}).Requests
	assert.Equal(t, cgroups.PodResources{
		QOS: cgroups.Burstable, CPURequest: 1100, CPULimit: 2100, MemoryLimit: 2 * mib, CPULimited: true, MemoryLimited: true,
		Hugepages: map[uint64]uint64{2 * mib: 4 * mib},
	}, qos.PodResources(pod, qos.Node{}))

	pod = podOf(corev1.Container{Name: "a"})
	assert.Equal(t, cgroups.PodResources{QOS: cgroups.BestEffort}, qos.PodResources(pod, qos.Node{}))

	pod.Status.QOSClass = corev1.PodQOSGuaranteed
	assert.Equal(t, cgroups.Guaranteed, qos.PodResources(pod, qos.Node{}).QOS, "the QoS class of the status is used")
}

func TestMemoryProtectionSumsRequestsByClass(t *testing.T) {
	pods := []*corev1.Pod{
		podOf(container([]string{"a", "cpu=1/1", "memory=4Mi/4Mi"})),
		podOf(container([]string{"a", "memory=2Mi"})),
		podOf(container([]string{"a", "memory=1Mi"})),
		podOf(container([]string{"a"})),
	}
	pods[1].Spec.Overhead = amounts([]string{"memory=1Mi"}).Requests
	for name, c := range map[string]struct {
		node            qos.Node
		root, burstable cgroups.Resources
	}{
		"no protection by default": {
			root: cgroups.Resources{MemoryMin: new(int64(0)), MemoryLow: new(int64(0))}, burstable: cgroups.Resources{MemoryLow: new(int64(0))},
		},
		"each level protects its descendants": {
			node:      qos.Node{Reservation: qos.TieredReservation},
			root:      cgroups.Resources{MemoryMin: new(int64(8 * mib)), MemoryLow: new(int64(4 * mib))},
			burstable: cgroups.Resources{MemoryLow: new(int64(4 * mib))},
		},
		"cgroup v1 has no protection": {node: qos.Node{Reservation: qos.TieredReservation, CgroupV1: true}},
	} {
		t.Run(name, func(t *testing.T) {
			root, burstable := qos.MemoryProtection(pods, c.node)
			assert.Equal(t, c.root, root)
			assert.Equal(t, c.burstable, burstable)
		})
	}
}

// On a machine without a hugetlb controller no limit is set, not even of zero. A page size that the machine does not have is
// still rejected.
func TestContainerResourcesOmitsHugepagesWithoutController(t *testing.T) {
	n := v1
	n.HugepageSizes, n.NoHugetlbController = []string{"2MB", "1GB"}, true
	pod := podOf(container([]string{"c", "hugepages-2Mi=/4Mi"}))
	r, err := qos.ContainerResources(pod, &pod.Spec.Containers[0], n)
	require.NoError(t, err)
	assert.Empty(t, r.HugepageLimits)
	pod = podOf(container([]string{"c", "hugepages-512Mi=/1Gi"}))
	_, err = qos.ContainerResources(pod, &pod.Spec.Containers[0], n)
	assert.ErrorContains(t, err, "512MB")
}
