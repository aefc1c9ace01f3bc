// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// On a node without free memory the BestEffort pod is killed, although another pod grows.
func ExampleNew() {
	tree := cgroupstest.New(cgroupstest.Options{
		Memory: 1 << 30,
		Killed: func(k cgroupstest.KilledProc) {
			fmt.Println(k.Name, "was killed:", k.Cause, "of", k.FullCgroup.Cgroupfs())
		},
	})
	ctx := context.Background()
	_ = tree.Apply(ctx, "kubepods/burstable/pod1", cgroups.Resources{CPUShares: 512})
	_ = tree.Apply(ctx, "kubepods/besteffort/pod2", cgroups.Resources{CPUShares: 2})
	web, _ := tree.Start(cgroupstest.Proc{Cgroup: "kubepods/burstable/pod1", Name: "web", OOMScoreAdj: 300, Memory: 512 << 20})
	_, _ = tree.Start(cgroupstest.Proc{Cgroup: "kubepods/besteffort/pod2", Name: "batch", OOMScoreAdj: 1000, Memory: 256 << 20})

	fmt.Println(tree.SetMemory(web, 900<<20))
	stats, _ := tree.Stats(ctx, "kubepods/besteffort")
	fmt.Println(stats.Memory.Current, "bytes,", stats.Memory.Events.OOMKill, "killed")
	// Output:
	// batch was killed: oom of /
	// <nil>
	// 0 bytes, 1 killed
}

// A driver whose Remove fails because processes survive.
func ExampleFaults() {
	f := &cgroupstest.Faults{Driver: cgroupstest.New(cgroupstest.Options{})}
	f.RemoveFunc = func(_ context.Context, _ cgroupstest.Driver, p cgroups.Path) error {
		return &cgroups.Error{Op: "remove", Path: p, Err: syscall.EBUSY}
	}
	var w cgroups.CgroupWriter = f
	err := w.Remove(context.Background(), "kubepods/pod1")
	fmt.Println(errors.Is(err, syscall.EBUSY))
	// Output:
	// true
}

// A driver that hangs, for example on a kernel lock.
func ExampleHang() {
	f := &cgroupstest.Faults{Driver: cgroupstest.New(cgroupstest.Options{})}
	f.StatsFunc = func(ctx context.Context, _ cgroupstest.Driver, _ cgroups.Path) (cgroups.Stats, error) {
		return cgroups.Stats{}, cgroupstest.Hang(ctx)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err := f.Stats(ctx, "kubepods/pod1")
	fmt.Println(err)
	// Output: context deadline exceeded
}

// Statistics for the test of a collector, an evictor or a dashboard.
func ExampleTree() {
	ctx, pod := context.Background(), cgroups.Path("kubepods/burstable/pod1")
	tree := cgroupstest.New(cgroupstest.Options{HugepageSizes: []string{"2MB"}})
	err := errors.Join(
		tree.Apply(ctx, pod, cgroups.Resources{}),
		tree.AddCPU(pod, cgroups.CPUStat{Usage: 3e9, Periods: 40, Throttled: 10}),
		tree.AddIO(pod, cgroups.IODevice{Major: 8, ReadBytes: 4096, Reads: 1}),
		tree.SetCache(pod, 64<<20), // page cache, a quarter of it active
		tree.SetActiveCache(pod, 16<<20),
		tree.SetHugetlb(pod, "2MB", 4<<20),
		tree.SetPressure(pod, "memory", cgroups.Pressure{Some: cgroups.PressureLine{Avg10: 12.5}}),
	)
	fmt.Println(err)

	stats, err := tree.Stats(ctx, "kubepods") // includes the usage of the pods below
	fmt.Println("cpu", stats.CPU.Usage, "throttled", stats.CPU.Throttled, err)
	fmt.Println("read", stats.IO.Devices[0].ReadBytes)
	fmt.Println("memory", stats.Memory.Current>>20, "working set", stats.Memory.WorkingSet()>>20, "MiB")
	fmt.Println("huge pages", stats.Hugetlb["2MB"].Current>>20, "MiB")
	fmt.Println("memory pressure", stats.Memory.Pressure.Some.Avg10)
	// Output:
	// <nil>
	// cpu 3000000000 throttled 10 <nil>
	// read 4096
	// memory 64 working set 16 MiB
	// huge pages 4 MiB
	// memory pressure 12.5
}

// A process that is protected from the OOM killer, and exits.
func ExampleTree_Start() {
	ctx := context.Background()
	tree := cgroupstest.New(cgroupstest.Options{Memory: 1 << 30})
	_ = tree.Apply(ctx, "system", cgroups.Resources{})
	agent, _ := tree.Start(cgroupstest.Proc{Cgroup: "system", Name: "agent", Memory: 900 << 20})
	batch, _ := tree.Start(cgroupstest.Proc{Cgroup: "system", Name: "batch", Memory: 100 << 20})
	_ = tree.SetOOMScoreAdj(agent, -999)

	fmt.Println(errors.Is(tree.SetMemory(batch, 200<<20), syscall.ESRCH)) // ESRCH: batch was killed
	if p, ok := tree.Proc(agent); ok {
		fmt.Println(p.Name, "runs with", p.Memory>>20, "MiB")
	}
	fmt.Println(tree.Exit(agent))
	// Output:
	// true
	// agent runs with 900 MiB
	// <nil>
}

// The suite with a driver, here a tree in memory.
func TestDriverPassesSuite(t *testing.T) {
	cgroupstest.TestDriver(t, cgroupstest.Fixture{
		New: func(*testing.T) cgroupstest.Driver { return cgroupstest.New(cgroupstest.Options{}) },
		Start: func(t *testing.T, d cgroupstest.Driver, p cgroups.Path, memory int64) int {
			pid, err := d.(*cgroupstest.Tree).Start(cgroupstest.Proc{Cgroup: p, Memory: memory})
			require.NoError(t, err)
			return pid
		},
		Controllers: []string{"cpu", "cpuset", "memory", "pids"},
	})
}
