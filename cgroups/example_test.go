// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

func ExampleNewPath() {
	_, err := cgroups.NewPath("kubepods", "../../system")
	fmt.Println(err)

	p, _ := cgroups.NewPath("kubepods", "burstable")
	fmt.Println(p.Join("pod1"))
	// Output:
	// cgroup path "kubepods/..//..//system": component ".." is not a name
	// kubepods/burstable/pod1
}

func ExamplePath_Systemd() {
	p := cgroups.PodPath("", cgroups.Burstable, "1234-ab")
	systemd, _ := p.Systemd()
	fmt.Println(p.Cgroupfs())
	fmt.Println(systemd)
	// Output:
	// /kubepods/burstable/pod1234-ab
	// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice
}

func ExampleForPod() {
	r := cgroups.ForPod(cgroups.PodResources{
		QOS:        cgroups.Burstable,
		CPURequest: 250, // millicores
		CPULimit:   500, CPULimited: true,
		MemoryLimit: 256 << 20, MemoryLimited: true,
	}, cgroups.PodOptions{})
	fmt.Println("cpu.shares", r.CPUShares)
	fmt.Println("cpu.max   ", r.CPUQuota, r.CPUPeriod)
	fmt.Println("memory.max", *r.MemoryMax)
	// Output:
	// cpu.shares 256
	// cpu.max    50000 100000
	// memory.max 268435456
}

func ExampleWeightFromShares() {
	shares := cgroups.CPUShares(1000)
	fmt.Println(shares)
	fmt.Println(cgroups.WeightFromShares(shares, cgroups.WeightLogQuadratic))
	fmt.Println(cgroups.WeightFromShares(shares, cgroups.WeightLinear))
	// Output:
	// 1024
	// 100
	// 39
}

func ExampleParsePressure() {
	p, err := cgroups.ParsePressure([]byte(
		"some avg10=12.50 avg60=3.10 avg300=0.70 total=4812345\n" +
			"full avg10=4.00 avg60=1.00 avg300=0.20 total=1200000\n"))
	fmt.Println(p.Some.Avg10, p.Full.Total, err)
	// Output: 12.5 1.2s <nil>
}

// CPU requests below MinShares and above MaxShares.
func ExampleCPUShares() {
	for _, milli := range []int64{0, 1, 250, 1 << 40} {
		shares := cgroups.CPUShares(milli)
		weight := cgroups.WeightFromShares(shares, cgroups.WeightLinear)
		fmt.Println(milli, shares, shares == cgroups.MinShares, shares == cgroups.MaxShares, weight == cgroups.MinWeight, weight == cgroups.MaxWeight)
	}
	// Output:
	// 0 2 true false true false
	// 1 2 true false true false
	// 250 256 false false false false
	// 1099511627776 262144 false true false true
}

// A limit of 5 millicores with different periods: the quota is at least MinQuota, so a short period allows more than the limit.
func ExampleCPUQuota() {
	for _, period := range []uint64{cgroups.MinPeriod, cgroups.DefaultPeriod, cgroups.MaxPeriod} {
		quota := cgroups.CPUQuota(5, period)
		fmt.Println(quota, period, quota == cgroups.MinQuota, cgroups.QuotaToMilli(quota, period))
	}
	// Output:
	// 1000 1000 true 1000
	// 1000 100000 true 10
	// 5000 1000000 false 5
}

// A program that sets the limit of its own systemd unit to 1.1 % of a CPU: systemd rounds up to whole percents.
func ExampleSystemdQuota() {
	perSec, rounded := cgroups.SystemdQuota(1100, cgroups.DefaultPeriod)
	fmt.Println("CPUQuotaPerSecUSec", perSec)
	fmt.Println("cpu.max", rounded, cgroups.DefaultPeriod)
	// Output:
	// CPUQuotaPerSecUSec 20000
	// cpu.max 2000 100000
}

// The names of hugetlb files contain the page sizes that a host can limit.
func ExampleParseHugepageSize() {
	for _, file := range []string{"hugetlb.2MB.max", "hugetlb.1GB.max"} {
		size := strings.TrimSuffix(strings.TrimPrefix(file, "hugetlb."), ".max")
		bytes, err := cgroups.ParseHugepageSize(size)
		fmt.Println(size, bytes, err)
	}
	// Output:
	// 2MB 2097152 <nil>
	// 1GB 1073741824 <nil>
}
