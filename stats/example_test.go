// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"errors"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/stats"
)

// The eviction signals of an in-memory node. A real node has driver.Open and remote.Dial instead of the fakes, and sets
// neither Proc nor Statfs.
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

// A mount that hangs loses only its own values: the error names the source, and HungCalls returns the pending call.
func ExampleCollector_HungCalls() {
	plugged := make(chan struct{})
	defer close(plugged)
	collector, err := stats.New(cgroupstest.New(cgroupstest.Options{}), critest.New(critest.Options{}), stats.Options{
		Root: "/srv/nfs",
		Proc: fstest.MapFS{"meminfo": {Data: []byte("MemTotal: 4194304 kB\n")}},
		Statfs: func(path string) (stats.Filesystem, error) {
			if path == "/srv/nfs" {
				<-plugged
			}
			return stats.Filesystem{CapacityBytes: 100 << 30}, nil
		},
		Timeout: 50 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	signals, err := collector.Signals(context.Background())
	fmt.Println("nodefs:", signals.NodeFs != nil)
	for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
		if failed, ok := errors.AsType[*stats.Error](err); ok && errors.Is(err, context.DeadlineExceeded) {
			fmt.Println("times out:", failed.Source)
		}
	}
	for _, call := range collector.HungCalls() {
		fmt.Println("hangs:", call.Path)
	}
	// Output:
	// nodefs: false
	// times out: nodefs
	// hangs: /srv/nfs
}
