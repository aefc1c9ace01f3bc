// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// ParsePressure parses cpu.pressure, memory.pressure and io.pressure, and the files of the same form in
// /proc/pressure. The line for all processes may be missing.
func ParsePressure(b []byte) (Pressure, error) {
	var p Pressure
	s := scanner{kind: "pressure", rest: b}
	some := false
	for s.next() {
		switch string(s.key) {
		case "some":
			p.Some, some = s.pressureLine(), true
		case "full":
			p.Full = s.pressureLine()
		}
	}
	if s.err == nil && !some {
		s.fail("no line for some", b)
	}
	return p, s.err
}

// pressureLine parses "avg10=0.00 avg60=0.00 avg300=0.00 total=0".
func (s *scanner) pressureLine() PressureLine {
	var p PressureLine
	known := 0
	for rest := s.value; len(rest) > 0; known++ {
		var field []byte
		field, rest = cut(rest)
		key, value, _ := bytes.Cut(field, []byte("="))
		switch string(key) {
		case "avg10":
			p.Avg10 = s.percent(value)
		case "avg60":
			p.Avg60 = s.percent(value)
		case "avg300":
			p.Avg300 = s.percent(value)
		case "total":
			const most = math.MaxInt64 / uint64(time.Microsecond)
			p.Total = time.Duration(min(s.parse(value), most)) * time.Microsecond
		default:
			known--
		}
	}
	if known != 4 {
		s.fail("not avg10, avg60, avg300 and total", s.value)
	}
	return p
}

// percent parses a number with two decimals. It takes digits and a point alone: ParseFloat knows more.
func (s *scanner) percent(text []byte) float64 {
	for _, c := range text {
		if (c < '0' || c > '9') && c != '.' {
			s.fail("no percentage", text)
			return 0
		}
	}
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		s.fail("no percentage", text)
	}
	return v
}
