// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
)

// A monitor that parses cgroup v2 files.
func ExampleParseCPUStat() {
	cpu, err := cgroups.ParseCPUStat([]byte("usage_usec 5000000\nnr_periods 600\nnr_throttled 150\nthrottled_usec 2500000\n"))
	quota, period, _ := cgroups.ParseCPUMax([]byte("50000 100000\n"))
	fmt.Println(cpu.Throttled, "of", cpu.Periods, "periods throttled, limit", cgroups.QuotaToMilli(quota, period), "millicores", err)
	// Output: 150 of 600 periods throttled, limit 500 millicores <nil>
}

func ExampleParseMemoryStat() {
	stat, _ := cgroups.ParseMemoryStat([]byte("anon 52428800\nfile 31457280\ninactive_file 20971520\n"))
	current, _ := cgroups.ParseCounter([]byte("94371840\n"))  // memory.current
	limit, _ := cgroups.ParseValue([]byte("max\n"))           // memory.max
	refused, _ := cgroups.ParseHugetlbEvents([]byte("max 3")) // hugetlb.2MB.events
	fmt.Println("working set", current-stat.InactiveFile, "limited", limit != cgroups.Unlimited, "huge pages refused", refused)
	// Output: working set 73400320 limited false huge pages refused 3
}

func ExampleParseIOStat() {
	devices, err := cgroups.ParseIOStat([]byte("8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n"))
	fmt.Println(devices[0].Major, devices[0].Minor, devices[0].WriteBytes, err)
	// Output: 8 0 8192 <nil>
}

// The files of cgroup v1 have other names and units.
func ExampleParseBlkio() {
	devices, _ := cgroups.ParseBlkio([]byte("8:0 Read 4096\n8:0 Write 8192\nTotal 12288\n"), []byte("8:0 Read 1\n8:0 Write 2\nTotal 3\n"))
	user, system, _ := cgroups.ParseCPUAcctStat([]byte("user 150\nsystem 50\n"))
	fmt.Println(devices[0].WriteBytes, user/1e6, system/1e6, "milliseconds")
	// Output: 8192 1500 500 milliseconds
}

func ExampleParseCPUList() {
	cpus, err := cgroups.ParseCPUList([]byte("0-3,8\n")) // cpuset.cpus.effective
	fmt.Println(cpus, cgroups.FormatCPUList(cpus[1:]), err)
	// Output: [0 1 2 3 8] 1-3,8 <nil>
}

// A cgroup without processes can be removed. A pod at its PID limit cannot fork.
func ExampleParseCgroupEvents() {
	events, _ := cgroups.ParseCgroupEvents([]byte("populated 0\nfrozen 0\n"))
	refused, _ := cgroups.ParsePidsEvents([]byte("max 12\n"))
	controllers, _ := cgroups.ParseControllers([]byte("cpuset cpu memory pids\n"))
	fmt.Println(events.Populated, refused, controllers)
	// Output: false 12 [cpuset cpu memory pids]
}

func ExampleParseSystemd() {
	p, err := cgroups.ParseSystemd("kubepods-burstable-pod1234_ab.slice")
	fmt.Println(p, p.Base(), err)
	// Output: kubepods/burstable/pod1234-ab pod1234-ab <nil>
}
