// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/stats"
)

// What is available on a node in memory. A real one has driver.Open and remote.Dial instead of the fakes, and neither Proc
// nor Statfs.
func ExampleNew() {
	ctx := context.Background()
	tree := cgroupstest.New(cgroupstest.Options{Memory: 4 << 30})
	limit := int64(3 << 30)
	_ = tree.Apply(ctx, "kubepods", cgroups.Resources{MemoryMax: &limit})
	_, _ = tree.Start(cgroupstest.Proc{Memory: 1 << 30})
	collector, err := stats.New(tree, critest.New(critest.Options{}), stats.Options{
		Proc: fstest.MapFS{
			"meminfo":                {Data: []byte("MemTotal: 4194304 kB\n")},
			"loadavg":                {Data: []byte("0.10 0.10 0.10 1/100 1234\n")},
			"sys/kernel/pid_max":     {Data: []byte("32768\n")},
			"sys/kernel/threads-max": {Data: []byte("30000\n")},
		},
		Statfs: func(string) (stats.Filesystem, error) {
			return stats.Filesystem{CapacityBytes: 100 << 30, AvailableBytes: 20 << 30, FreeBytes: 20 << 30}, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	signals, err := collector.Signals(ctx)
	fmt.Println("memory.available", signals.Memory.Available>>20, "of", signals.Memory.Capacity>>20, "MiB")
	fmt.Println("allocatableMemory.available", signals.Allocatable.Available>>20, "MiB")
	fmt.Println("nodefs.available", signals.NodeFs.Available>>30, "GiB, pid.available", signals.PIDs.Available, err)
	// Output:
	// memory.available 3072 of 4096 MiB
	// allocatableMemory.available 3072 MiB
	// nodefs.available 20 GiB, pid.available 29900 <nil>
}
