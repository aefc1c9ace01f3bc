// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// ParseValue parses a file that holds one limit: memory.max, memory.min, memory.low, memory.high, memory.swap.max,
// pids.max, hugetlb.SIZE.max, and of v1 cpu.cfs_quota_us and the files named limit_in_bytes. "max" and -1 are
// [Unlimited], and so is anything above 2⁶², which is how v1 writes no limit: the largest number, rounded down to pages
// of one size or another.
func ParseValue(b []byte) (int64, error) {
	text := bytes.TrimSuffix(b, []byte("\n"))
	if string(text) == "max" || string(text) == "-1" {
		return Unlimited, nil
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("neither a number nor max: %s", excerpt(text))
	case v > 1<<62:
		return Unlimited, nil
	}
	return int64(v), nil
}

// ParseCounter parses a file that holds one number that no limit bounds: memory.current, memory.peak, pids.current,
// hugetlb.SIZE.current, cpu.weight, and of v1 cpuacct.usage, cpu.shares, cpu.cfs_period_us and the files named
// usage_in_bytes or failcnt.
func ParseCounter(b []byte) (uint64, error) {
	text := bytes.TrimSuffix(b, []byte("\n"))
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("no number: %s", excerpt(text))
	}
	return v, nil
}

// ParseCPUMax parses cpu.max: the quota, which may be [Unlimited], and the period, both in microseconds.
func ParseCPUMax(b []byte) (quota int64, period uint64, err error) {
	s := scanner{kind: "cpu max", rest: b}
	if !s.next() {
		return 0, 0, s.err
	}
	quota = Unlimited
	if string(s.key) != "max" {
		v := s.parse(s.key)
		if v > math.MaxInt64 {
			s.fail("no quota", s.key)
		}
		quota = int64(v)
	}
	period = s.number()
	if s.nextLine() {
		s.fail("more than one line", s.text)
	}
	if s.err != nil {
		return 0, 0, s.err
	}
	return quota, period, nil
}
