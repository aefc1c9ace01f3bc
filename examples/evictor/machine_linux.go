// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/eviction"
)

// machine contains the cgroups and the file system of this machine that the example observes.
type machine struct {
	cgroups *driver.Driver
	dir     string
}

// observePods measures the available memory and disk space, and the usage of each child of the root cgroup.
func (m machine) observePods(ctx context.Context) (o eviction.Observation, err error) {
	total, available, err := readMemInfo()
	if err != nil {
		return o, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(m.dir, &fs); err != nil {
		return o, fmt.Errorf("statfs %s: %w", m.dir, err)
	}
	o.Readings = []eviction.Reading{
		{Signal: eviction.MemoryAvailable, Available: available, Capacity: total},
		{Signal: eviction.NodeFSAvailable, Available: int64(fs.Bavail) * fs.Bsize, Capacity: int64(fs.Blocks) * fs.Bsize},
	}
	names, err := m.cgroups.Children(ctx, "")
	for _, name := range names {
		stats, err := m.cgroups.Stats(ctx, cgroups.Path(name))
		if err != nil {
			continue // removed since the listing
		}
		o.Candidates = append(o.Candidates, eviction.Candidate{
			UID: name, Name: name, Measured: true, Memory: int64(stats.Memory.WorkingSet()), Swap: int64(stats.Memory.Swap), Tasks: int64(stats.Pids.Current),
		})
	}
	o.Measured = true
	return o, err
}

// readMemInfo returns the total and the available memory in bytes, from /proc/meminfo.
func readMemInfo() (total, available int64, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", "meminfo"))
	for line := range strings.Lines(string(text)) {
		for name, n := range map[string]*int64{"MemTotal:": &total, "MemAvailable:": &available} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				_, err = fmt.Sscan(rest, n)
				*n <<= 10
			}
		}
	}
	return total, available, err
}
