// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

// MemoryEvents counts the effects of memory limits on a cgroup and its descendants.
type MemoryEvents struct {
	Low          uint64 // reclaim took memory that memory.low protects
	High         uint64 // processes were throttled at memory.high
	Max          uint64 // usage was about to exceed memory.max; memory.failcnt on v1
	OOM          uint64 // reclaim failed and an allocation was about to fail
	OOMKill      uint64 // processes killed by the OOM killer
	OOMGroupKill uint64 // the OOM killer killed a whole cgroup; since Linux 5.17
}

// ParseMemoryEvents parses memory.events or memory.events.local of v2, or memory.oom_control of v1. The file of v1 has only
// the value for OOMKill.
func ParseMemoryEvents(content []byte) (MemoryEvents, error) {
	var e MemoryEvents
	s := scanner{kind: "memory events", rest: content}
	for s.nextPair() {
		switch string(s.key) {
		case "low":
			e.Low = s.parseValue()
		case "high":
			e.High = s.parseValue()
		case "max":
			e.Max = s.parseValue()
		case "oom":
			e.OOM = s.parseValue()
		case "oom_kill":
			e.OOMKill = s.parseValue()
		case "oom_group_kill":
			e.OOMGroupKill = s.parseValue()
		}
	}
	return e, s.err
}

// ParsePidsEvents parses pids.events, and returns how many forks were refused because of a limit.
func ParsePidsEvents(content []byte) (refused uint64, err error) {
	return parseMaxEvents("pids events", content)
}

// ParseHugetlbEvents parses hugetlb.SIZE.events, and returns how many allocations were refused because of a limit.
func ParseHugetlbEvents(content []byte) (refused uint64, err error) {
	return parseMaxEvents("hugetlb events", content)
}

func parseMaxEvents(kind string, b []byte) (refused uint64, err error) {
	s := scanner{kind: kind, rest: b}
	for s.nextPair() {
		if string(s.key) == "max" {
			refused = s.parseValue()
		}
	}
	return refused, s.err
}

// ParseCgroupEvents parses cgroup.events, which exists on cgroup v2 only.
func ParseCgroupEvents(content []byte) (CgroupEvents, error) {
	var e CgroupEvents
	s := scanner{kind: "cgroup events", rest: content}
	for s.nextPair() {
		switch string(s.key) {
		case "populated":
			e.Populated = s.parseFlag()
		case "frozen":
			e.Frozen = s.parseFlag()
		}
	}
	return e, s.err
}

// parseFlag returns the value of the current line as a bool. The value must be 0 or 1.
func (s *scanner) parseFlag() bool {
	v := s.parseValue()
	if v > 1 {
		s.setError("neither 0 nor 1", s.value)
	}
	return v == 1
}
