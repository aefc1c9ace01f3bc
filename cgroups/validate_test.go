// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/cgroups"
)

func TestValidateRejectsInvalidResources(t *testing.T) {
	for complaint, r := range map[string]cgroups.Resources{
		"field CPUShares: 1 is not from 2 to 262144":                  {CPUShares: 1},
		"field CPUShares: 262145 is not from 2 to 262144":             {CPUShares: 262145},
		"field CPUQuota: 999 is neither -1 nor at least 1000":         {CPUQuota: 999},
		"field CPUQuota: -2 is neither -1 nor at least 1000":          {CPUQuota: -2},
		"field CPUPeriod: 999 is not from 1000 to 1000000":            {CPUPeriod: 999},
		"field CPUPeriod: 1000001 is not from 1000 to 1000000":        {CPUPeriod: 1000001},
		`field CpusetCPUs: cpu list line 1: no range of CPUs: "3-0"`:  {CpusetCPUs: "3-0"},
		`field CpusetMems: cpu list line 1: no number: "a"`:           {CpusetMems: "0,a"},
		"field MemoryMax: -2 is less than -1":                         {MemoryMax: new(int64(-2))},
		"field MemoryMin: -2 is less than -1":                         {MemoryMin: new(int64(-2))},
		"field MemoryLow: -2 is less than -1":                         {MemoryLow: new(int64(-2))},
		"field MemoryHigh: -2 is less than -1":                        {MemoryHigh: new(int64(-2))},
		"field SwapMax: -2 is less than -1":                           {SwapMax: new(int64(-2))},
		"field PidsMax: -2 is less than -1":                           {PidsMax: new(int64(-2))},
		"field Hugetlb: 2MB: -2 is less than -1":                      {Hugetlb: map[string]int64{"1GB": 0, "2MB": -2}},
		`field Hugetlb: "../2MB" is not a hugepage size, such as 2MB`: {Hugetlb: map[string]int64{"../2MB": 0}},
		`field Unified: "../memory.max" is not a file name`:           {Unified: map[string]string{"../memory.max": "0"}},
		`field Unified: ".." is not a file name`:                      {Unified: map[string]string{"..": "0"}},
		`field Unified: "" is not a file name`:                        {Unified: map[string]string{"": "0"}},
	} {
		assert.EqualError(t, r.Validate(), complaint)
	}
}

func TestValidateAcceptsRangeLimits(t *testing.T) {
	for _, r := range []cgroups.Resources{
		{},
		{CPUShares: 2, CPUQuota: 1000, CPUPeriod: 1000, CpusetCPUs: "0-3,7", CpusetMems: "0", MemoryMax: new(int64(0))},
		{CPUShares: 262144, CPUQuota: cgroups.Unlimited, CPUPeriod: 1000000, MemoryMax: new(int64(cgroups.Unlimited))},
		{Hugetlb: map[string]int64{"2MB": cgroups.Unlimited}, Unified: map[string]string{"io.max": "8:0 rbps=1"}},
	} {
		assert.NoError(t, r.Validate())
	}
}
