// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"fmt"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

func ExampleLayout_Take() {
	machine, err := topology.Parse("2 sockets 2 nodes 4 cores 2 threads")
	if err != nil {
		fmt.Println(err)
		return
	}
	layout, err := cpus.NewLayout(machine)
	if err != nil {
		fmt.Println(err)
		return
	}
	free := machine.Set()
	fmt.Println("threads per core:", layout.ThreadsPerCore())
	for _, request := range []struct {
		count   int
		options cpus.Options
	}{
		{10, cpus.Options{}},
		{10, cpus.Options{SpreadNodes: true}},
		{10, cpus.Options{WholeCores: true, SpreadNodes: true, AlignSocket: true}},
		{4, cpus.Options{SpreadCores: true}},
		{4, cpus.Options{AlignCaches: true}},
		{17, cpus.Options{}},
	} {
		taken, err := layout.Take(free, request.count, request.options)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(taken)
	}
	// Output:
	// threads per core: 2
	// 0-4,8-12
	// 0-2,4-6,8-9,12-13
	// 0-2,4-5,8-10,12-13
	// 0-3
	// 0-1,8-9
	// not enough cpus available to satisfy request: requested=17, available=16
}
