// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing/fstest"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

func ExampleParse() {
	machine, err := topology.Parse("2 sockets 2 nodes 2 cores 2 threads 512 MiB")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cpu := range machine.CPUs {
		fmt.Printf("CPU %d: core %d, socket %d, node %d\n", cpu.ID, cpu.Core, cpu.Socket, cpu.Node)
	}
	fmt.Println("all:", machine.Set())
	node := machine.Nodes[1]
	fmt.Printf("node %d: %d bytes, distances %v\n", node.ID, node.Memory, node.Distances)
	// Output:
	// CPU 0: core 0, socket 0, node 0
	// CPU 1: core 1, socket 0, node 0
	// CPU 2: core 2, socket 1, node 1
	// CPU 3: core 3, socket 1, node 1
	// CPU 4: core 0, socket 0, node 0
	// CPU 5: core 1, socket 0, node 0
	// CPU 6: core 2, socket 1, node 1
	// CPU 7: core 3, socket 1, node 1
	// all: 0-7
	// node 1: 536870912 bytes, distances [20 10]
}

// On a real machine, root is os.DirFS("/").
func ExampleRead() {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"cpu/online":                                         "0-1\n",
		"cpu/cpu0/topology/core_id":                          "0\n",
		"cpu/cpu0/topology/physical_package_id":              "0\n",
		"cpu/cpu1/topology/core_id":                          "0\n",
		"cpu/cpu1/topology/physical_package_id":              "0\n",
		"node/node0/cpu0/uevent":                             "",
		"node/node0/cpu1/uevent":                             "",
		"node/node0/hugepages/hugepages-2048kB/nr_hugepages": "64\n",
	} {
		root["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text)}
	}
	machine, err := topology.Read(root)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cpu := range machine.CPUs {
		fmt.Printf("CPU %d: core %d, socket %d, node %d\n", cpu.ID, cpu.Core, cpu.Socket, cpu.Node)
	}
	for _, node := range machine.Nodes {
		for _, pages := range node.HugePages {
			fmt.Println("node", node.ID, "has", pages.Count, "huge pages of", pages.Size, "bytes")
		}
	}
	// Output:
	// CPU 0: core 0, socket 0, node 0
	// CPU 1: core 0, socket 0, node 0
	// node 0 has 64 huge pages of 2097152 bytes
}

func ExampleCPUSet() {
	container, err := topology.ParseCPUSet("0-3,8")
	if err != nil {
		fmt.Println(err)
		return
	}
	reserved := topology.NewCPUSet(0, 4)
	fmt.Println("common:", container.Intersect(reserved), container.CountCommon(reserved))
	fmt.Println("without:", container.Minus(reserved))
	fmt.Println("together:", container.Union(reserved))
	fmt.Println("IDs:", slices.Collect(container.All()), "from", container.Lowest(), "to", container.Highest())
	fmt.Println("has 8:", container.Has(8))
	reserved.Add(5)
	text, err := json.Marshal(map[string]topology.CPUSet{"reservedSystemCPUs": reserved})
	fmt.Println(string(text), err)
	// Output:
	// common: 0 1
	// without: 1-3,8
	// together: 0-4,8
	// IDs: [0 1 2 3 8] from 0 to 8
	// has 8: true
	// {"reservedSystemCPUs":"0,4-5"} <nil>
}
