// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import (
	"bytes"
	"math"
)

// ParseIOStat parses io.stat: the devices with traffic, in the kernel's order. Keys that it does not know are left out.
// Some kernels end the line of a device without traffic too early, so that the next device follows on it.
func ParseIOStat(b []byte) ([]IODevice, error) {
	if len(b) == 0 {
		return nil, nil
	}
	devices := make([]IODevice, 0, bytes.Count(b, []byte("\n"))+1)
	s := scanner{kind: "io stat", rest: b}
	for s.nextLine() {
		var d IODevice
		counted := false
		for i, rest := 0, s.text; len(rest) > 0; i++ {
			var field []byte
			field, rest = cut(rest)
			key, value, isCounter := bytes.Cut(field, []byte("="))
			switch {
			case isCounter && i > 0:
				counted = true
				s.ioCounter(&d, key, value)
			case !isCounter && !counted && len(field) > 0:
				d.Major, d.Minor = s.device(field)
			case len(field) > 0:
				s.fail("neither a device nor a counter", field)
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

// ioCounter puts one counter where it belongs.
func (s *scanner) ioCounter(d *IODevice, key, value []byte) {
	switch string(key) {
	case "rbytes":
		d.ReadBytes = s.parse(value)
	case "wbytes":
		d.WriteBytes = s.parse(value)
	case "dbytes":
		d.DiscardBytes = s.parse(value)
	case "rios":
		d.Reads = s.parse(value)
	case "wios":
		d.Writes = s.parse(value)
	case "dios":
		d.Discards = s.parse(value)
	}
}

// device parses the two numbers of a block device.
func (s *scanner) device(text []byte) (major, minor uint32) {
	before, after, _ := bytes.Cut(text, []byte(":"))
	high, low := s.parse(before), s.parse(after)
	if high > math.MaxUint32 || low > math.MaxUint32 {
		s.fail("no device", text)
	}
	return uint32(high), uint32(low)
}
