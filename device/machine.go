// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// onlineNodes is the file with the NUMA nodes of a machine. Source: Documentation/ABI/stable/sysfs-devices-node of the kernel.
const onlineNodes = "sys/devices/system/node/online"

// ReadMachineNodes returns the NUMA nodes of the machine with this root directory, for [Topology]. A kernel without NUMA support
// has node 0.
func ReadMachineNodes(root fs.FS) (Mask, error) {
	file, err := root.Open(onlineNodes)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read NUMA nodes: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return 0, fmt.Errorf("read NUMA nodes: %w", err)
	}
	nodes, err := parseNodes(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read NUMA nodes in /%s: %w", onlineNodes, err)
	}
	return nodes, nil
}

// parseNodes parses a list of ranges such as "0-1,3".
func parseNodes(list string) (m Mask, err error) {
	for part := range strings.SplitSeq(list, ",") {
		from, to, found := strings.Cut(part, "-")
		if !found {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 8)
		if err != nil {
			return 0, fmt.Errorf("list %.40q: %w", list, err)
		}
		last, err := strconv.ParseUint(to, 10, 8)
		if err != nil {
			return 0, fmt.Errorf("list %.40q: %w", list, err)
		}
		if first > last || last > 63 {
			return 0, fmt.Errorf("list %.40q: range %s is not within 0 to 63", list, part)
		}
		for n := first; n <= last; n++ {
			m |= 1 << n
		}
	}
	return m, nil
}
