// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
)

// ParseIOStat parses io.stat and returns the devices with traffic, in the kernel's order. It ignores unknown keys. It
// accepts two devices on the same line, because some kernels omit the newline after a device without traffic.
func ParseIOStat(content []byte) ([]IODevice, error) {
	if len(content) == 0 {
		return nil, nil
	}
	devices := make([]IODevice, 0, bytes.Count(content, []byte("\n"))+1)
	s := scanner{kind: "io stat", rest: content}
	for s.nextLine() {
		var d IODevice
		counted := false
		for i, rest := 0, s.text; len(rest) > 0; i++ {
			var field []byte
			field, rest = cutField(rest)
			key, value, isCounter := bytes.Cut(field, []byte("="))
			switch {
			case isCounter && i > 0:
				counted = true
				s.setIOCounter(&d, key, value)
			case !isCounter && !counted && len(field) > 0:
				d.Major, d.Minor = s.parseDevice(field)
			case len(field) > 0:
				s.setError("neither a device nor a counter", field)
			}
		}
		if counted && s.err == nil {
			devices = append(devices, d)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return devices, nil
}

// setIOCounter stores a counter such as rbytes=4096 in its field of d. Unknown keys are ignored.
func (s *scanner) setIOCounter(d *IODevice, key, value []byte) {
	switch string(key) {
	case "rbytes":
		d.ReadBytes = s.parseNumber(value)
	case "wbytes":
		d.WriteBytes = s.parseNumber(value)
	case "dbytes":
		d.DiscardBytes = s.parseNumber(value)
	case "rios":
		d.Reads = s.parseNumber(value)
	case "wios":
		d.Writes = s.parseNumber(value)
	case "dios":
		d.Discards = s.parseNumber(value)
	}
}

// parseDevice parses the numbers "major:minor" of a block device.
func (s *scanner) parseDevice(text []byte) (major, minor uint32) {
	before, after, _ := bytes.Cut(text, []byte(":"))
	high, low := s.parseNumber(before), s.parseNumber(after)
	if high > math.MaxUint32 || low > math.MaxUint32 {
		s.setError("no device", text)
	}
	return uint32(high), uint32(low)
}
