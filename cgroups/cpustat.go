// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "math"

// ParseCPUStat parses cpu.stat. On v2 it has all of [CPUStat] but the pressure; on v1 it has the periods and what was
// throttled, and [ParseCPUAcctStat] and cpuacct.usage have the rest. Keys that it does not know are left out.
func ParseCPUStat(b []byte) (CPUStat, error) {
	var c CPUStat
	s := scanner{kind: "cpu stat", rest: b}
	for s.next() {
		switch string(s.key) {
		case "usage_usec":
			c.Usage = s.micros()
		case "user_usec":
			c.User = s.micros()
		case "system_usec":
			c.System = s.micros()
		case "nr_periods":
			c.Periods = s.number()
		case "nr_throttled":
			c.Throttled = s.number()
		case "throttled_usec":
			c.ThrottledTime = s.micros()
		case "throttled_time": // v1
			c.ThrottledTime = s.number()
		case "nr_bursts":
			c.Bursts = s.number()
		case "burst_usec":
			c.BurstTime = s.micros()
		case "burst_time": // v1
			c.BurstTime = s.number()
		}
	}
	return c, s.err
}

// ParseCPUAcctStat parses cpuacct.stat of v1: nanoseconds of CPU time in user mode and in the kernel. The file counts
// in ticks of USER_HZ, which is 100 in a second on every architecture of Linux that Go runs on.
func ParseCPUAcctStat(b []byte) (user, system uint64, err error) {
	const perTick = 1_000_000_000 / 100
	const most = math.MaxUint64 / perTick
	s := scanner{kind: "cpuacct stat", rest: b}
	for s.next() {
		switch string(s.key) {
		case "user":
			user = min(s.number(), most) * perTick
		case "system":
			system = min(s.number(), most) * perTick
		}
	}
	return user, system, s.err
}
