// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

// Freeze the processes of a pod during a snapshot of its files, if the driver implements Freezer.
func ExampleFreezer() {
	ctx, path := context.Background(), cgroups.PodPath("", cgroups.Burstable, "u1")
	tree := cgroupstest.New(cgroupstest.Options{}) // driver.Open on a real host
	snapshot := func(w cgroups.CgroupWriter) error {
		if f, ok := w.(cgroups.Freezer); ok {
			if err := f.Freeze(ctx, path); err != nil {
				return err
			}
			defer func() { _ = f.Thaw(context.WithoutCancel(ctx), path) }()
		}
		stats, err := tree.Stats(ctx, path)
		fmt.Println("frozen:", stats.Events.Frozen)
		return err
	}
	fmt.Println(tree.Apply(ctx, path, cgroups.Resources{}))
	fmt.Println(snapshot(tree))
	stats, err := tree.Stats(ctx, path)
	fmt.Println("frozen:", stats.Events.Frozen, err)
	// Output:
	// <nil>
	// frozen: true
	// <nil>
	// frozen: false <nil>
}

// Check that the CPU shares of a pod are in force. On cgroup v2 the value read differs from the value written, because cpu.weight
// has less precision.
func ExampleReader() {
	ctx, path := context.Background(), cgroups.PodPath("", cgroups.Burstable, "u1")
	var w cgroups.CgroupWriter = cgroupstest.New(cgroupstest.Options{})
	if err := w.Apply(ctx, path, cgroups.Resources{CPUShares: 512}); err != nil {
		fmt.Println(err)
	}
	r, ok := w.(cgroups.Reader)
	if !ok {
		return // this writer cannot be checked
	}
	limits, err := r.Limits(ctx, path)
	fmt.Println(limits.CPUShares, err)
	fmt.Println("in force:", limits.CPUShares == cgroups.RoundTripShares(512, cgroups.WeightLogQuadratic))
	// Output:
	// 521 <nil>
	// in force: true
}
