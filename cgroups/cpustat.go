// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "math"

// ParseCPUStat parses cpu.stat. On v2 it sets all fields of [CPUStat] except Pressure and Limit. On v1 it sets only the
// periods and the throttling, because the CPU time is in other files, see [ParseCPUAcctStat]. It ignores unknown keys.
func ParseCPUStat(content []byte) (CPUStat, error) {
	var c CPUStat
	s := scanner{kind: "cpu stat", rest: content}
	for s.nextPair() {
		switch string(s.key) {
		case "usage_usec":
			c.Usage = s.parseMicroseconds()
		case "user_usec":
			c.User = s.parseMicroseconds()
		case "system_usec":
			c.System = s.parseMicroseconds()
		case "nr_periods":
			c.Periods = s.parseValue()
		case "nr_throttled":
			c.Throttled = s.parseValue()
		case "throttled_usec":
			c.ThrottledTime = s.parseMicroseconds()
		case "throttled_time": // v1
			c.ThrottledTime = s.parseValue()
		case "nr_bursts":
			c.Bursts = s.parseValue()
		case "burst_usec":
			c.BurstTime = s.parseMicroseconds()
		case "burst_time": // v1
			c.BurstTime = s.parseValue()
		}
	}
	return c, s.err
}

// ParseCPUAcctStat parses cpuacct.stat of v1. It returns the CPU time in user mode and in kernel mode, in nanoseconds. The
// file counts ticks, which are 10 ms on every Linux architecture that Go supports.
func ParseCPUAcctStat(content []byte) (user, system uint64, err error) {
	const perTick = 1_000_000_000 / 100
	const most = math.MaxUint64 / perTick
	s := scanner{kind: "cpuacct stat", rest: content}
	for s.nextPair() {
		switch string(s.key) {
		case "user":
			user = min(s.parseValue(), most) * perTick
		case "system":
			system = min(s.parseValue(), most) * perTick
		}
	}
	return user, system, s.err
}
