// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "slices"

// ParseBlkio parses two files of v1 that tell of the same devices: the bytes in blkio.throttle.io_service_bytes and the
// operations in blkio.throttle.io_serviced, or those named _recursive, which include the cgroups below. Devices without
// traffic are left out.
func ParseBlkio(bytes, operations []byte) ([]IODevice, error) {
	devices, err := appendBlkio(nil, "blkio bytes", bytes, (*IODevice).bytesOf)
	if err == nil {
		devices, err = appendBlkio(devices, "blkio operations", operations, (*IODevice).operationsOf)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(devices, IODevice.idle), nil
}

// appendBlkio adds one of the files. A line is "8:0 Read 4096"; those for Sync, Async and Total count the same traffic
// again.
func appendBlkio(devices []IODevice, kind string, b []byte, field func(*IODevice, string) *uint64) ([]IODevice, error) {
	s := scanner{kind: kind, rest: b}
	for s.nextLine() {
		name, rest := cut(s.text)
		if string(name) == "Total" {
			continue
		}
		major, minor := s.device(name)
		op, value := cut(rest)
		n := s.parse(value)
		if s.err != nil {
			return nil, s.err
		}
		i := slices.IndexFunc(devices, func(d IODevice) bool { return d.Major == major && d.Minor == minor })
		if i < 0 {
			i, devices = len(devices), append(devices, IODevice{Major: major, Minor: minor})
		}
		if f := field(&devices[i], string(op)); f != nil {
			*f = n
		}
	}
	return devices, nil
}

// bytesOf returns where the bytes of an operation go, nil for one that is not kept.
func (d *IODevice) bytesOf(op string) *uint64 {
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

// operationsOf is bytesOf for the number of operations.
func (d *IODevice) operationsOf(op string) *uint64 {
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

func (d IODevice) idle() bool { return d == IODevice{Major: d.Major, Minor: d.Minor} }
