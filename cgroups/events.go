// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

// MemoryEvents counts what limits of memory did, in the cgroup and below.
type MemoryEvents struct {
	Low          uint64 // times that reclaim took memory that memory.low protects
	High         uint64 // times that processes were throttled to get below memory.high
	Max          uint64 // times that use was about to pass memory.max; memory.failcnt on v1
	OOM          uint64 // times that reclaim did not help and an allocation was about to fail
	OOMKill      uint64 // processes that the OOM killer killed
	OOMGroupKill uint64 // times that it killed a whole cgroup; since Linux 5.17
}

// ParseMemoryEvents parses memory.events, memory.events.local, and memory.oom_control of v1, which has only the
// processes killed.
func ParseMemoryEvents(b []byte) (MemoryEvents, error) {
	var e MemoryEvents
	s := scanner{kind: "memory events", rest: b}
	for s.next() {
		switch string(s.key) {
		case "low":
			e.Low = s.number()
		case "high":
			e.High = s.number()
		case "max":
			e.Max = s.number()
		case "oom":
			e.OOM = s.number()
		case "oom_kill":
			e.OOMKill = s.number()
		case "oom_group_kill":
			e.OOMGroupKill = s.number()
		}
	}
	return e, s.err
}

// ParsePidsEvents parses pids.events: how many forks a limit refused.
func ParsePidsEvents(b []byte) (refused uint64, err error) { return parseMax("pids events", b) }

// ParseHugetlbEvents parses hugetlb.SIZE.events: how many allocations a limit refused.
func ParseHugetlbEvents(b []byte) (refused uint64, err error) { return parseMax("hugetlb events", b) }

func parseMax(kind string, b []byte) (refused uint64, err error) {
	s := scanner{kind: kind, rest: b}
	for s.next() {
		if string(s.key) == "max" {
			refused = s.number()
		}
	}
	return refused, s.err
}

// ParseCgroupEvents parses cgroup.events of v2.
func ParseCgroupEvents(b []byte) (CgroupEvents, error) {
	var e CgroupEvents
	s := scanner{kind: "cgroup events", rest: b}
	for s.next() {
		switch string(s.key) {
		case "populated":
			e.Populated = s.flag()
		case "frozen":
			e.Frozen = s.flag()
		}
	}
	return e, s.err
}

// flag returns the value of the line, which is 0 or 1.
func (s *scanner) flag() bool {
	v := s.number()
	if v > 1 {
		s.fail("neither 0 nor 1", s.value)
	}
	return v == 1
}
