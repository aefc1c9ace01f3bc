// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// On a node that runs out of memory the pod that asked for nothing goes first, though another one grows.
func ExampleNew() {
	tree := cgroupstest.New(cgroupstest.Options{
		Memory: 1 << 30,
		Killed: func(k cgroupstest.Kill) { fmt.Println(k.Name, "was killed:", k.Cause, "of", k.Full.Cgroupfs()) },
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

// A writer that meets a cgroup whose processes do not die.
func ExampleFaults() {
	f := &cgroupstest.Faults{Target: cgroupstest.New(cgroupstest.Options{})}
	f.RemoveFunc = func(_ context.Context, _ cgroupstest.Target, p cgroups.Path) error {
		return &cgroups.Error{Op: "remove", Path: p, Err: syscall.EBUSY}
	}
	var w cgroups.CgroupWriter = f
	err := w.Remove(context.Background(), "kubepods/pod1")
	fmt.Println(errors.Is(err, syscall.EBUSY))
	// Output:
	// true
}
