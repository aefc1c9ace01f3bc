// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// ParseValue parses a file with one limit, such as memory.max, pids.max or cpu.cfs_quota_us. It returns [Unlimited] for
// "max", -1 and numbers above 2⁶², which v1 shows if there is no limit.
func ParseValue(content []byte) (int64, error) {
	text := bytes.TrimSuffix(content, []byte("\n"))
	if string(text) == "max" || string(text) == "-1" {
		return Unlimited, nil
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("neither a number nor max: %s", quoteExcerpt(text))
	case v > 1<<62:
		return Unlimited, nil
	}
	return int64(v), nil
}

// ParseCounter parses a file with one number. Such files of v2 are memory.current, memory.peak, pids.current,
// hugetlb.SIZE.current and cpu.weight. Such files of v1 are cpuacct.usage, cpu.shares, cpu.cfs_period_us, *.usage_in_bytes
// and *.failcnt.
func ParseCounter(content []byte) (uint64, error) {
	text := bytes.TrimSuffix(content, []byte("\n"))
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("no number: %s", quoteExcerpt(text))
	}
	return v, nil
}

// ParseCPUMax parses cpu.max. It returns the quota and the period in microseconds. The quota may be [Unlimited].
func ParseCPUMax(content []byte) (quota int64, period uint64, err error) {
	s := scanner{kind: "cpu max", rest: content}
	if !s.nextPair() {
		return 0, 0, s.err
	}
	quota = Unlimited
	if string(s.key) != "max" {
		v := s.parseNumber(s.key)
		if v > math.MaxInt64 {
			s.setError("no quota", s.key)
		}
		quota = int64(v)
	}
	period = s.parseValue()
	if s.nextLine() {
		s.setError("more than one line", s.text)
	}
	if s.err != nil {
		return 0, 0, s.err
	}
	return quota, period, nil
}
