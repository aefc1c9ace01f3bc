// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestForPodLimitsByClass(t *testing.T) {
	const mi = 1 << 20
	for _, tc := range []struct {
		name string
		pod  cgroups.PodResources
		node cgroups.PodOptions
		want cgroups.Resources
	}{
		{
			name: "Guaranteed has all limits",
			pod:  cgroups.PodResources{QOS: cgroups.Guaranteed, CPURequest: 100, CPULimit: 100, MemoryLimit: 100 * mi},
			want: cgroups.Resources{CPUShares: 102, CPUQuota: 10000, CPUPeriod: 100000, MemoryMax: new(int64(104857600))},
		},
		{
			name: "Guaranteed on a node without quotas",
			pod:  cgroups.PodResources{QOS: cgroups.Guaranteed, CPURequest: 100, CPULimit: 100, MemoryLimit: 100 * mi},
			node: cgroups.PodOptions{NoCPUQuota: true},
			want: cgroups.Resources{CPUShares: 102, CPUQuota: cgroups.Unlimited, CPUPeriod: 100000, MemoryMax: new(int64(104857600))},
		},
		{
			name: "Guaranteed by status only, zero limits mean no limit",
			pod:  cgroups.PodResources{QOS: cgroups.Guaranteed},
			want: cgroups.Resources{CPUShares: 2, CPUPeriod: 100000},
		},
		{
			name: "Burstable with limits of all containers",
			pod: cgroups.PodResources{
				QOS: cgroups.Burstable, CPURequest: 100, CPULimit: 200, CPULimited: true, MemoryLimit: 200 * mi, MemoryLimited: true,
			},
			want: cgroups.Resources{CPUShares: 102, CPUQuota: 20000, CPUPeriod: 100000, MemoryMax: new(int64(209715200))},
		},
		{
			name: "Burstable with an unlimited container has no limit",
			pod:  cgroups.PodResources{QOS: cgroups.Burstable, CPURequest: 100, CPULimit: 200, MemoryLimit: 200 * mi},
			want: cgroups.Resources{CPUShares: 102},
		},
		{
			name: "Burstable with a memory limit on a node without quotas",
			pod:  cgroups.PodResources{QOS: cgroups.Burstable, CPURequest: 100, MemoryLimit: mi, MemoryLimited: true},
			node: cgroups.PodOptions{NoCPUQuota: true},
			want: cgroups.Resources{CPUShares: 102, MemoryMax: new(int64(mi))},
		},
		{
			name: "Burstable with a CPU limit on a node without quotas",
			pod:  cgroups.PodResources{QOS: cgroups.Burstable, CPURequest: 100, CPULimit: 200, CPULimited: true},
			node: cgroups.PodOptions{NoCPUQuota: true},
			want: cgroups.Resources{CPUShares: 102, CPUQuota: cgroups.Unlimited, CPUPeriod: 100000},
		},
		{
			name: "short period gives an exact quota",
			pod:  cgroups.PodResources{QOS: cgroups.Burstable, CPULimit: 200, CPULimited: true},
			node: cgroups.PodOptions{CPUPeriod: 5000},
			want: cgroups.Resources{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 5000},
		},
		{
			name: "short period raises the quota to MinQuota",
			pod:  cgroups.PodResources{QOS: cgroups.Burstable, CPULimit: 100, CPULimited: true},
			node: cgroups.PodOptions{CPUPeriod: 5000},
			want: cgroups.Resources{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 5000},
		},
		{
			name: "BestEffort has MinShares for any request",
			pod: cgroups.PodResources{
				QOS: cgroups.BestEffort, CPURequest: 100, CPULimit: 100, CPULimited: true, MemoryLimit: mi, MemoryLimited: true,
			},
			want: cgroups.Resources{CPUShares: 2},
		},
		{
			name: "unknown class is BestEffort",
			pod:  cgroups.PodResources{QOS: "guaranteed", CPURequest: 100},
			want: cgroups.Resources{CPUShares: 2},
		},
		{
			name: "PID limit for every class",
			pod:  cgroups.PodResources{QOS: cgroups.BestEffort},
			node: cgroups.PodOptions{PidsMax: 1024},
			want: cgroups.Resources{CPUShares: 2, PidsMax: new(int64(1024))},
		},
		{
			name: "PidsMax -1 is no limit",
			pod:  cgroups.PodResources{QOS: cgroups.BestEffort},
			node: cgroups.PodOptions{PidsMax: -1},
			want: cgroups.Resources{CPUShares: 2},
		},
		{
			name: "unrequested page sizes are limited to zero",
			pod:  cgroups.PodResources{QOS: cgroups.BestEffort, Hugepages: map[uint64]uint64{2 * mi: 384, 4 * mi: 512}},
			node: cgroups.PodOptions{HugepageSizes: []string{"2MB", "1GB"}},
			want: cgroups.Resources{CPUShares: 2, Hugetlb: map[string]int64{"2MB": 384, "4MB": 512, "1GB": 0}},
		},
		{
			name: "page size without a name is skipped, huge amount saturates",
			pod:  cgroups.PodResources{QOS: cgroups.BestEffort, Hugepages: map[uint64]uint64{1500: 1, 2 * mi: math.MaxUint64}},
			want: cgroups.Resources{CPUShares: 2, Hugetlb: map[string]int64{"2MB": math.MaxInt64}},
		},
		{
			name: "memory QoS fields are copied",
			pod: cgroups.PodResources{
				QOS: cgroups.Burstable, MemoryLow: new(int64(mi)), MemoryHigh: new(int64(2 * mi)), MemoryMin: new(int64(0)),
			},
			want: cgroups.Resources{
				CPUShares: 2, MemoryLow: new(int64(mi)), MemoryHigh: new(int64(2 * mi)), MemoryMin: new(int64(0)),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := cgroups.ForPod(tc.pod, tc.node)
			assert.Equal(t, tc.want, got)
			assert.NoError(t, got.Validate())
		})
	}
}

func TestForPodResultSharesNoMemoryWithArgument(t *testing.T) {
	low := int64(7)
	pod := cgroups.PodResources{QOS: cgroups.Burstable, MemoryLow: &low}
	r := cgroups.ForPod(pod, cgroups.PodOptions{})
	low = 8
	require.NotNil(t, r.MemoryLow)
	assert.EqualValues(t, 7, *r.MemoryLow)
}
