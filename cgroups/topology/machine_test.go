// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// makeSysfs returns files with these contents, by path below /sys/devices/system.
func makeSysfs(files map[string]string) fstest.MapFS {
	system := fstest.MapFS{}
	for name, text := range files {
		system["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return system
}

// addCPU adds the files of a CPU, with a level-3 cache that the CPUs of shared have.
func addCPU(files map[string]string, id, core, socket, cache int, shared string) {
	dir := fmt.Sprintf("cpu/cpu%d/", id)
	maps.Copy(files, map[string]string{
		dir + "topology/core_id": fmt.Sprint(core), dir + "topology/physical_package_id": fmt.Sprint(socket),
		dir + "cache/index0/size": "32K", dir + "cache/index0/type": "Data", dir + "cache/index3/size": "32768K", dir + "cache/index3/type": "Unified",
		dir + "cache/index0/level": "1", dir + "cache/index0/id": fmt.Sprint(id), dir + "cache/index0/shared_cpu_list": fmt.Sprint(id),
		dir + "cache/index3/level": "3", dir + "cache/index3/id": fmt.Sprint(cache), dir + "cache/index3/shared_cpu_list": shared,
	})
}

// twoNodes returns the files of a socket with two NUMA nodes of two cores with two threads; each core has a cache of its own. CPU 7 is offline.
func twoNodes() map[string]string {
	files := map[string]string{
		"cpu/online":          "0-6",
		"node/node0/cpulist":  "0-1,4-5",
		"node/node1/cpulist":  "2-3,6-7",
		"node/node0/meminfo":  "Node 0 MemTotal:       2048 kB\nNode 0 MemFree:        1024 kB",
		"node/node1/meminfo":  "Node 1 MemTotal:       4096 kB",
		"node/node0/distance": "10 21",
		"node/node1/distance": "21 10",
		"node/node0/hugepages/hugepages-2048kB/nr_hugepages":    "3",
		"node/node0/hugepages/hugepages-1048576kB/nr_hugepages": "0",
		"node/possible": "0-1",
	}
	files["node/node1/cpu7/online"] = "0"
	for id := range 7 {
		core := id % 4
		files[fmt.Sprintf("node/node%d/cpu%d/online", core/2, id)] = "1"
		shared := fmt.Sprintf("%d,%d", core, core+4)
		if core == 3 {
			shared = "3" // without the offline CPU
		}
		addCPU(files, id, core, 0, core, shared)
	}
	return files
}

func TestReadFindsNodesCoresCachesAndMemory(t *testing.T) {
	machine, err := topology.Read(makeSysfs(twoNodes()))
	require.NoError(t, err)
	require.Equal(t, &topology.Machine{
		CPUs: []topology.CPU{
			{ID: 0, Core: 0, Node: 0, Cache: 0},
			{ID: 1, Core: 1, Node: 0, Cache: 1},
			{ID: 2, Core: 2, Node: 1, Cache: 2},
			{ID: 3, Core: 3, Node: 1, Cache: 3},
			{ID: 4, Core: 0, Node: 0, Cache: 0},
			{ID: 5, Core: 1, Node: 0, Cache: 1},
			{ID: 6, Core: 2, Node: 1, Cache: 2},
		},
		Nodes: []topology.Node{
			{ID: 0, Memory: 2 << 20, Distances: []int{10, 21}, HugePages: []topology.HugePages{{Size: 2 << 20, Count: 3}, {Size: 1 << 30}}},
			{ID: 1, Memory: 4 << 20, Distances: []int{21, 10}},
		},
	}, machine)
}

func TestReadWithoutWhatOlderKernelsLack(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(files map[string]string)
		check  func(t *testing.T, m *topology.Machine)
	}{
		{
			"a cache without ID: this core and the later ones of the node have the socket",
			func(files map[string]string) {
				delete(files, "cpu/cpu3/cache/index3/id")
				delete(files, "cpu/cpu0/cache/index0/size")
			},
			func(t *testing.T, m *topology.Machine) {
				require.Equal(t, []int{0, 0, 2, 0}, []int{m.CPUs[0].Cache, m.CPUs[1].Cache, m.CPUs[2].Cache, m.CPUs[3].Cache})
			},
		},
		{
			"an ID of a cache with 32 bits",
			func(files map[string]string) { files["cpu/cpu2/cache/index3/id"] = "4294967295" },
			func(t *testing.T, m *topology.Machine) { require.Equal(t, 4294967295, m.CPUs[2].Cache) },
		},
		{
			"a cache of all CPUs of a node is no cache of some cores",
			func(files map[string]string) {
				for _, cpu := range []int{0, 1, 4, 5} {
					files[fmt.Sprintf("cpu/cpu%d/cache/index3/shared_cpu_list", cpu)] = "0-1,4-5"
				}
			},
			func(t *testing.T, m *topology.Machine) { require.Equal(t, 0, m.CPUs[1].Cache) },
		},
		{
			"a CPU without core is left out",
			func(files map[string]string) { delete(files, "cpu/cpu0/topology/core_id") },
			func(t *testing.T, m *topology.Machine) {
				require.Equal(t, topology.CPU{ID: 1, Core: 1, Cache: 1}, m.CPUs[0])
				require.Equal(t, 4, m.CPUs[3].Core, "the lowest thread of its core")
			},
		},
		{
			"no NUMA nodes: each socket is a node without memory",
			func(files map[string]string) {
				maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "node/") })
				files["cpu/cpu1/topology/physical_package_id"] = "1"
				files["cpu/cpu5/topology/physical_package_id"] = "1"
			},
			func(t *testing.T, m *topology.Machine) {
				require.Equal(t, []topology.Node{{ID: 0}, {ID: 1}}, m.Nodes)
				require.Equal(t, topology.CPU{ID: 5, Core: 1, Socket: 1, Node: 1, Cache: 1}, m.CPUs[5])
			},
		},
		{
			"no list of online CPUs: all are online",
			func(files map[string]string) {
				delete(files, "cpu/online")
				addCPU(files, 7, 3, 0, 3, "7")
			},
			func(t *testing.T, m *topology.Machine) {
				all := m.Set()
				require.Equal(t, "0-7", all.String())
			},
		},
		{
			"a node without CPUs",
			func(files map[string]string) { files["node/node2/numastat"] = "" },
			func(t *testing.T, m *topology.Machine) { require.Equal(t, topology.Node{ID: 2}, m.Nodes[2]) },
		},
		{
			"an unknown socket", // of a virtual machine on arm64
			func(files map[string]string) {
				for id := range 7 {
					files[fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", id)] = "-1"
				}
			},
			func(t *testing.T, m *topology.Machine) { require.Equal(t, -1, m.CPUs[0].Socket) },
		},
		{
			"neither NUMA nodes nor a known socket",
			func(files map[string]string) {
				maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasPrefix(name, "node/") })
				for id := range 7 {
					files[fmt.Sprintf("cpu/cpu%d/topology/physical_package_id", id)] = "-1"
				}
			},
			func(t *testing.T, m *topology.Machine) {
				require.Equal(t, []topology.Node{{}}, m.Nodes)
				require.Equal(t, -1, m.CPUs[5].Socket)
				require.Zero(t, m.CPUs[5].Node)
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := twoNodes()
			tc.change(files)
			machine, err := topology.Read(makeSysfs(files))
			require.NoError(t, err)
			tc.check(t, machine)
		})
	}
}

func TestReadNamesTheFileThatIsWrong(t *testing.T) {
	for _, tc := range []struct{ file, text, want string }{
		{"cpu/online", "0-x", `/sys/devices/system/cpu/online: CPU list "0-x": "x" is no ID`},
		{"cpu/online", "2048", `/sys/devices/system/cpu/online: CPU list "2048": ID 2048 is not below 2048`},
		{"cpu/cpu0/topology/core_id", "many", `/sys/devices/system/cpu/cpu0/topology/core_id: "many" is no number`},
		{"node/node1/cpu0/online", "1", "/sys/devices/system/node/node1/cpu0: another node has this CPU, too"},
		{"node/node1/cpu2048/online", "1", "/sys/devices/system/node/node1/cpu2048: its number is larger than 2047"},
		{"node/node0/meminfo", "Node 0 MemTotal: 1 MB", `/sys/devices/system/node/node0/meminfo: "Node 0 MemTotal: 1 MB" has no MemTotal in kB`},
		{"node/node0/distance", "10 far", `/sys/devices/system/node/node0/distance: "10 far" is no list of distances`},
		{"node/node0/hugepages/hugepages-2M/nr_hugepages", "1", `/sys/devices/system/node/node0/hugepages: "hugepages-2M" is no size of huge pages`},
		{
			"node/node0/hugepages/hugepages-2048kB/nr_hugepages", "-1",
			`/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages: the number of huge pages is -1`,
		},
		{"cpu/online", strings.Repeat("0,", 64<<10), "/sys/devices/system/cpu/online: it has more than 65536 bytes"},
	} {
		files := twoNodes()
		files[tc.file] = tc.text
		_, err := topology.Read(makeSysfs(files))
		require.EqualError(t, err, "read the topology of the machine: "+tc.want)
	}
	_, err := topology.Read(fstest.MapFS{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = topology.Read(makeSysfs(map[string]string{"cpu/online": "0"}))
	require.EqualError(t, err, "read the topology of the machine: /sys/devices/system/cpu: no CPU has a known core and socket")
}

func TestParseNamesTheFieldThatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"2 sockets 1 node":                          "field cores is missing",
		"2 sockets 1 node 4 cores 4":                `"4" is followed by no field`,
		"2 sockets 1 node 4 cores 2 cores":          "field cores occurs twice",
		"2 sockets 1 node 4 gpus":                   `field "gpus" is unknown`,
		"0 sockets 1 node 4 cores":                  `field sockets: "0" is no number from 1 to 2048`,
		"2 sockets 3 nodes 4 cores":                 "field nodes: 3 nodes are neither a multiple nor a divisor of 2 sockets",
		"1 socket 3 nodes 4 cores":                  "field nodes: 4 cores cannot be divided among 3 nodes",
		"1 socket 1 node 4 cores 3 caches":          "field caches: 4 cores cannot be divided among 3 caches",
		"1 socket 4 nodes 24 cores 6 caches":        "field caches: 6 caches cannot be divided among 4 nodes",
		"2048 sockets 1 node 2 cores":               "it has more than 2048 CPUs",
		"2048 sockets 1 node 2048 cores 8 threads":  "it has more than 2048 CPUs",
		"1 socket 1 node 1 core 99999999999999 MiB": `field MiB: "99999999999999" is no number from 1 to 67108864`,
	} {
		_, err := topology.Parse(text)
		require.EqualError(t, err, fmt.Sprintf("machine %q: %s", text, want))
	}
}

// A machine in words has the cores and caches that the files of such a machine have.
func TestParseMakesTheMachineThatReadFinds(t *testing.T) {
	parsed, err := topology.Parse("1 socket 2 nodes 4 cores 2 threads 4 caches")
	require.NoError(t, err)
	files := twoNodes()
	files["cpu/online"] = "0-7"
	addCPU(files, 7, 3, 0, 3, "3,7")
	addCPU(files, 3, 3, 0, 3, "3,7")
	read, err := topology.Read(makeSysfs(files))
	require.NoError(t, err)
	require.Equal(t, read.CPUs, parsed.CPUs)

	parsed, err = topology.Parse("1 socket 2 nodes 4 cores 2 threads 2 caches") // each node has one cache
	require.NoError(t, err)
	for _, cpu := range parsed.CPUs {
		require.Equal(t, cpu.Socket, cpu.Cache)
	}
}
