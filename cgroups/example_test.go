// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
)

func ExampleNewPath() {
	_, err := cgroups.NewPath("kubepods", "../../system")
	fmt.Println(err)

	p, _ := cgroups.NewPath("kubepods", "burstable")
	fmt.Println(p.Join("pod1"))
	// Output:
	// cgroup path "kubepods/..//..//system": component ".." is no name
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
