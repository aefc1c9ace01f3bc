// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// A worker with a quota of half a CPU wants a whole one, and its neighbour more memory than the machine has.
func Example() {
	ctx := context.Background()
	m, err := machine.New(machine.Spec{CPUs: 2, Memory: 1 << 30, Killed: func(k cgroupstest.KilledProc) { fmt.Println(k.Name, "is killed:", k.Cause) }})
	if err != nil {
		fmt.Println(err)
		return
	}
	for p, r := range map[cgroups.Path]cgroups.Resources{"worker": {CPUQuota: 50_000}, "neighbour": {}} {
		if err := m.Cgroups().Apply(ctx, p, r); err != nil {
			fmt.Println(err)
		}
	}
	for name, demand := range map[string]machine.Demand{"worker": {CPU: 1}, "neighbour": {Memory: 2 << 30}} {
		pid, err := m.Start(machine.Process{Cgroup: cgroups.Path(name), Name: name})
		if err == nil {
			err = m.SetDemand(pid, demand)
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	for range 60 {
		m.Step(time.Second)
	}
	s, err := m.Cgroups().Stats(ctx, "worker")
	fmt.Println(m.Elapsed(), "of", m.Spec().CPUs, "CPUs:", time.Duration(s.CPU.Usage), "used,", s.CPU.Throttled, "periods throttled", err)
	// Output:
	// neighbour is killed: oom
	// 1m0s of 2 CPUs: 30s used, 600 periods throttled <nil>
}

// A process writes logs until the disk is full. They stay after its exit, until their owner is removed.
func ExampleMachine_RemoveFiles() {
	m, err := machine.New(machine.Spec{Disk: machine.Disk{Bytes: 1 << 30}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m.WriteFiles(machine.Files{Disk: machine.ImageDisk, Owner: "image", Directory: "layers", Bytes: 300 << 20, Inodes: 9})
	pid, err := m.Start(machine.Process{Name: "writer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	logs := machine.Files{Disk: machine.NodeDisk, Owner: "writer", Directory: "logs", Bytes: 1 << 30, Inodes: 1}
	fmt.Println(m.SetDemand(pid, machine.Demand{Files: []machine.Files{logs}}))
	m.Step(0)
	fmt.Println(m.Exit(pid), m.Files("writer")[0].Bytes>>20, "MiB of logs")
	m.RemoveFiles("writer")
	fmt.Println(m.DiskUsage(machine.NodeDisk).UsedBytes>>20, "MiB used")
	// Output:
	// <nil>
	// <nil> 724 MiB of logs
	// 300 MiB used
}

// A long run takes one step while no demand changes, unless a process still waits for memory or a full disk.
func ExampleMachine_Settled() {
	m, err := machine.New(machine.Spec{CPUs: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	pid, err := m.Start(machine.Process{Name: "worker"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.SetDemand(pid, machine.Demand{CPU: 1, Memory: 1 << 30}), m.Settled())
	m.Step(time.Second)
	fmt.Println(m.Settled())
	m.Step(time.Hour)
	s, err := m.Cgroups().Stats(context.Background(), "")
	fmt.Println(time.Duration(s.CPU.Usage), err)
	// Output:
	// <nil> false
	// true
	// 1h0m1s <nil>
}
