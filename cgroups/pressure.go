// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// ParsePressure parses a pressure file of a cgroup, such as memory.pressure, or a file in /proc/pressure. The line "full"
// may be missing, because older kernels do not have it for CPU.
func ParsePressure(content []byte) (Pressure, error) {
	var p Pressure
	s := scanner{kind: "pressure", rest: content}
	some := false
	for s.nextPair() {
		switch string(s.key) {
		case "some":
			p.Some, some = s.parsePressureLine(), true
		case "full":
			p.Full = s.parsePressureLine()
		}
	}
	if s.err == nil && !some {
		s.setError("no line for some", content)
	}
	return p, s.err
}

// parsePressureLine parses the rest of the current line. An example is "avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func (s *scanner) parsePressureLine() PressureLine {
	var p PressureLine
	known := 0
	for rest := s.value; len(rest) > 0; known++ {
		var field []byte
		field, rest = cutField(rest)
		key, value, _ := bytes.Cut(field, []byte("="))
		switch string(key) {
		case "avg10":
			p.Avg10 = s.parsePercent(value)
		case "avg60":
			p.Avg60 = s.parsePercent(value)
		case "avg300":
			p.Avg300 = s.parsePercent(value)
		case "total":
			const most = math.MaxInt64 / uint64(time.Microsecond)
			p.Total = time.Duration(min(s.parseNumber(value), most)) * time.Microsecond
		default:
			known--
		}
	}
	if known != 4 {
		s.setError("not avg10, avg60, avg300 and total", s.value)
	}
	return p
}

// parsePercent parses a decimal number. It accepts only digits and a point, because strconv.ParseFloat accepts more than the
// kernel writes.
func (s *scanner) parsePercent(text []byte) float64 {
	for _, c := range text {
		if (c < '0' || c > '9') && c != '.' {
			s.setError("no percentage", text)
			return 0
		}
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		s.setError("no percentage", text)
	}
	return v
}
