// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "slices"

// ParseBlkio returns the block devices with traffic from two files of v1, blkio.throttle.io_service_bytes and
// blkio.throttle.io_serviced, or from their variants with the suffix _recursive.
func ParseBlkio(bytes, operations []byte) ([]IODevice, error) {
	devices, err := appendBlkio(nil, "blkio bytes", bytes, (*IODevice).byteField)
	if err == nil {
		devices, err = appendBlkio(devices, "blkio operations", operations, (*IODevice).operationField)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(devices, IODevice.isIdle), nil
}

// appendBlkio adds counters from lines such as "8:0 Read 4096" to devices. kind is the name of the file for errors.
func appendBlkio(devices []IODevice, kind string, content []byte, counterOf func(*IODevice, string) *uint64) ([]IODevice, error) {
	s := scanner{kind: kind, rest: content}
	for s.nextLine() {
		name, rest := cutField(s.text)
		if string(name) == "Total" {
			continue
		}
		major, minor := s.parseDevice(name)
		op, value := cutField(rest)
		n := s.parseNumber(value)
		if s.err != nil {
			return nil, s.err
		}
		i := slices.IndexFunc(devices, func(d IODevice) bool { return d.Major == major && d.Minor == minor })
		if i < 0 {
			i, devices = len(devices), append(devices, IODevice{Major: major, Minor: minor})
		}
		if f := counterOf(&devices[i], string(op)); f != nil { // nil: an operation that is not counted
			*f = n
		}
	}
	return devices, nil
}

// byteField returns the counter of bytes for an operation such as "Read". It returns nil for operations that are not
// counted.
func (d *IODevice) byteField(op string) *uint64 {
	switch op {
	case "Read":
		return &d.ReadBytes
	case "Write":
		return &d.WriteBytes
	case "Discard":
		return &d.DiscardBytes
	}
	return nil
}

// operationField returns the counter of operations for an operation such as "Read". It returns nil for operations that are
// not counted.
func (d *IODevice) operationField(op string) *uint64 {
	switch op {
	case "Read":
		return &d.Reads
	case "Write":
		return &d.Writes
	case "Discard":
		return &d.Discards
	}
	return nil
}

func (d IODevice) isIdle() bool { return d == IODevice{Major: d.Major, Minor: d.Minor} }
