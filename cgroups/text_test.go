// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestResourcesString(t *testing.T) {
	zero, free := int64(0), int64(cgroups.Unlimited)
	all := cgroups.Resources{
		CPUShares: 256, CPUQuota: cgroups.Unlimited, CPUPeriod: 100000, CpusetCPUs: "0-3", CpusetMems: "0",
		MemoryMax: new(int64(128 << 20)), MemoryMin: &zero, MemoryLow: &zero, MemoryHigh: &free, SwapMax: &zero,
		OOMGroup: new(true), PidsMax: &free, Hugetlb: map[string]int64{"2MB": 4 << 20, "1GB": 0},
		Unified: map[string]string{"io.weight": "default 50"},
	}
	for i, v := 0, reflect.ValueOf(all); i < v.NumField(); i++ {
		assert.False(t, v.Field(i).IsZero(), "%s is not in this test", v.Type().Field(i).Name)
	}
	assert.Equal(t, "CPUShares=256 CPUQuota=max CPUPeriod=100000 CpusetCPUs=0-3 CpusetMems=0 MemoryMax=134217728 MemoryMin=0 "+
		"MemoryLow=0 MemoryHigh=max SwapMax=0 PidsMax=max OOMGroup=true Hugetlb[1GB]=0 Hugetlb[2MB]=4194304 "+
		`io.weight="default 50"`, fmt.Sprint(all))
	assert.Empty(t, cgroups.Resources{}.String())
}
