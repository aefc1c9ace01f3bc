// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// Create the cgroup of a pod with its limits, pass its name to a container runtime, and remove it with its processes.
func ExampleOpen() {
	ctx := context.Background()
	d, err := driver.Open(ctx, driver.Options{Logger: slog.Default()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	pod := cgroups.PodPath("", cgroups.Burstable, "1234-ab")
	memory := int64(64 << 20)
	if err := d.Apply(ctx, pod, cgroups.Resources{CPUShares: cgroups.CPUShares(500), MemoryMax: &memory}); err != nil {
		fmt.Println(err)
		return
	}
	parent, err := d.Name(pod)
	fmt.Println("the runtime takes it as", parent, err)
	fmt.Println(d.Remove(ctx, pod))
}
