// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"slices"
	"strconv"
)

// maxCPU is the highest accepted number of a CPU or memory node: more than any kernel supports, and low enough that a forged list
// uses little memory.
const maxCPU = 1<<16 - 1

// ParseCPUList parses a file that lists CPUs or memory nodes, such as cpuset.cpus or cpuset.mems.effective. An example is
// "0-3,7". It returns the numbers sorted and without duplicates, or nil for an empty list.
func ParseCPUList(content []byte) ([]int, error) {
	s := scanner{kind: "cpu list", rest: content}
	var cpus []int
	if s.nextLine() && len(s.text) > 0 {
		cpus = s.parseCPURanges()
	}
	if s.nextLine() {
		s.setError("more than one line", s.text)
	}
	if s.err != nil {
		return nil, s.err
	}
	slices.Sort(cpus)
	return slices.Compact(cpus), nil
}

// parseCPURanges returns the numbers in the current line, which is a list such as "0-3,7".
func (s *scanner) parseCPURanges() []int {
	var cpus []int
	for item := range bytes.SplitSeq(s.text, []byte(",")) {
		from, to, isRange := bytes.Cut(item, []byte("-"))
		first := s.parseNumber(from)
		last := first
		if isRange {
			last = s.parseNumber(to)
		}
		switch {
		case first > last || last > maxCPU:
			s.setError("no range of CPUs", item)
		case len(cpus) > maxCPU:
			s.setError("more than all CPUs", s.text)
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

// FormatCPUList formats a list of CPUs as the kernel does, for example "0-3,7". The text is sorted and has ranges. Two lists
// contain the same CPUs if and only if their texts are equal.
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
