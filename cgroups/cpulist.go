// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"slices"
	"strconv"
)

// maxCPU is the highest number of a CPU or memory node in a list: above what any kernel is built for, and low enough
// that a forged list takes little memory.
const maxCPU = 1<<16 - 1

// ParseCPUList parses a list of CPUs or memory nodes such as "0-3,7": cpuset.cpus, cpuset.mems and those named
// effective. The numbers are returned in rising order, each once; an empty list is nil.
func ParseCPUList(b []byte) ([]int, error) {
	s := scanner{kind: "cpu list", rest: b}
	var cpus []int
	if s.nextLine() && len(s.text) > 0 {
		cpus = s.cpus()
	}
	if s.nextLine() {
		s.fail("more than one line", s.text)
	}
	if s.err != nil {
		return nil, s.err
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// cpus parses the ranges of the line.
func (s *scanner) cpus() []int {
	var cpus []int
	for item := range bytes.SplitSeq(s.text, []byte(",")) {
		from, to, isRange := bytes.Cut(item, []byte("-"))
		first := s.parse(from)
		last := first
		if isRange {
			last = s.parse(to)
		}
		switch {
		case first > last || last > maxCPU:
			s.fail("no range of CPUs", item)
		case len(cpus) > maxCPU:
			s.fail("more than all CPUs", s.text)
		}
		if s.err != nil {
			return nil
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus
}

// FormatCPUList returns the list as the kernel writes it: in rising order, with neighbours as a range. Two lists are
// the same set if they are the same text.
func FormatCPUList(cpus []int) string {
	cpus = slices.Compact(slices.Sorted(slices.Values(cpus)))
	var text []byte
	for i := 0; i < len(cpus); {
		end := i + 1
		for end < len(cpus) && cpus[end] == cpus[end-1]+1 {
			end++
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(cpus[i]), 10)
		if end > i+1 {
			text = append(text, '-')
			text = strconv.AppendInt(text, int64(cpus[end-1]), 10)
		}
		i = end
	}
	return string(text)
}
