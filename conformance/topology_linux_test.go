// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	kubelettopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/mounttest"
)

const sysDir = "/sys/devices/system"

// cAdvisor and ours read the same machine from generated files of the kernel: numbers with gaps, offline CPUs, missing files, caches of any size.
func TestReadTopology(t *testing.T) {
	mounttest.Need(t)
	require.NoError(t, unix.Mount("tmpfs", sysDir, "tmpfs", 0, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(sysDir, unix.MNT_DETACH)) })
	nodes := 0
	for i := range max(1, flags.Inputs()/500) {
		files := makeSysFiles(conformance.NewChoices(conformance.RandomBytes(flags.Seed(), uint64(i))))
		writeSysFiles(t, files)
		kubelet, kubeletErr := readKubeletTopology()
		machine, err := topology.Read(os.DirFS("/"))
		if kubeletErr != nil {
			require.Error(t, err, "cAdvisor: %v\n%s", kubeletErr, strings.Join(files, "\n"))
			continue
		}
		require.NoError(t, err, "%s", strings.Join(files, "\n"))
		require.Equal(t, kubelet, describeMachine(machine), "%s", strings.Join(files, "\n"))
		nodes += len(machine.Nodes)
	}
	t.Log(nodes, "NUMA nodes")
}

// readKubeletTopology returns the lines of describeMachine for the machine that cAdvisor reads and the CPU manager discovers.
func readKubeletTopology() (lines []string, err error) {
	nodes, count, err := sysinfo.GetNodesInfo(sysfs.NewRealSysFs())
	if err != nil {
		return nil, err
	}
	found, err := kubelettopology.Discover(klog.Logger{}, &cadvisorapi.MachineInfo{NumCores: count, NumSockets: 1, Topology: nodes})
	if err != nil {
		return nil, err
	}
	ids := found.CPUDetails.CPUs().List()
	if len(ids) == 0 {
		return nil, fmt.Errorf("%d CPUs without core", count)
	}
	for _, id := range ids {
		d := found.CPUDetails[id]
		lines = append(lines, fmt.Sprintf("cpu %d core %d socket %d node %d cache %d", id, d.CoreID, d.SocketID, d.NUMANodeID, d.UncoreCacheID))
	}
	slices.SortFunc(nodes, func(a, b cadvisorapi.Node) int { return a.Id - b.Id })
	for _, n := range nodes {
		slices.SortFunc(n.HugePages, func(a, b cadvisorapi.HugePagesInfo) int { return int(a.PageSize) - int(b.PageSize) })
		line := fmt.Sprintf("node %d memory %d distances %v", n.Id, n.Memory, n.Distances)
		for _, pages := range n.HugePages {
			line += fmt.Sprintf(" %d pages of %d", pages.NumPages, pages.PageSize<<10)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// describeMachine returns a line for each CPU and each NUMA node.
func describeMachine(m *topology.Machine) (lines []string) {
	for _, c := range m.CPUs {
		lines = append(lines, fmt.Sprintf("cpu %d core %d socket %d node %d cache %d", c.ID, c.Core, c.Socket, c.Node, c.Cache))
	}
	for _, n := range m.Nodes {
		line := fmt.Sprintf("node %d memory %d distances %v", n.ID, n.Memory, n.Distances)
		for _, pages := range n.HugePages {
			line += fmt.Sprintf(" %d pages of %d", pages.Count, pages.Size)
		}
		lines = append(lines, line)
	}
	return lines
}

// writeSysFiles replaces the files. Each is a path below sysDir, and its content or the target of the link after a space.
func writeSysFiles(t *testing.T, files []string) {
	t.Helper()
	for _, dir := range []string{"cpu", "node"} {
		require.NoError(t, os.RemoveAll(filepath.Join(sysDir, dir)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(sysDir, "cpu"), 0o755))
	for _, file := range files {
		name, content, _ := strings.Cut(file, " ")
		path := filepath.Join(sysDir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, isLink := strings.CutPrefix(content, "-> "); isLink {
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(content+"\n"), 0o600))
	}
}

// makeSysFiles returns the files of a machine.
func makeSysFiles(c *conformance.Choices) (files []string) {
	add := func(format string, args ...any) {
		if !c.OneIn(300) { // a file is missing
			files = append(files, fmt.Sprintf(format, args...))
		}
	}
	sockets, cores, threads := 1+c.Int(3), 1+c.Int(4), 1+c.Int(2)
	nodes := sockets * (1 + c.Int(2))
	gap, count, withNodes := c.Int(2), sockets*cores*threads, !c.OneIn(6)
	perCache := 1 + c.Int(cores) // cores of a last-level cache
	online := []string{}
	for id := range count {
		offline := id > 0 && c.OneIn(12)
		core := id % (sockets * cores)
		socket := core / cores
		if !offline {
			online = append(online, fmt.Sprint(id))
		}
		if withNodes {
			node := core * nodes / (sockets * cores) * (1 + gap)
			files = append(files, fmt.Sprintf("node/node%d/cpu%d -> ../../cpu/cpu%d", node, id, id))
		}
		dir := fmt.Sprintf("cpu/cpu%d", id)
		add("%s/uevent x", dir)
		if offline {
			continue
		}
		add("%s/topology/core_id %d", dir, core%cores*(1+gap))
		add("%s/topology/physical_package_id %d", dir, socket)
		var shared topology.CPUSet
		for other := range count {
			if at := other % (sockets * cores); at/cores == socket && at%cores/perCache == core%cores/perCache {
				shared.Add(other)
			}
		}
		addSysCache(add, dir+"/cache/index0", "Data", 1, id, topology.NewCPUSet(id))
		addSysCache(add, dir+"/cache/index3", "Unified", 3, socket*cores+core%cores/perCache, shared)
	}
	if !c.OneIn(10) {
		files = append(files, "cpu/online "+strings.Join(online, ","))
	}
	for n := range nodes {
		if dir := fmt.Sprintf("node/node%d", n*(1+gap)); withNodes {
			addSysNode(c, add, dir, n, nodes)
		}
	}
	return files
}

// addSysCache adds the files of a cache. The kernel has its CPUs as a mask and as a list.
func addSysCache(add func(string, ...any), dir, kind string, level, id int, shared topology.CPUSet) {
	mask := uint64(0)
	for cpu := range shared.All() {
		mask |= 1 << cpu
	}
	add("%s/id %d", dir, id)
	add("%s/size %dK", dir, 32*level)
	add("%s/level %d", dir, level)
	add("%s/type %s", dir, kind)
	add("%s/shared_cpu_map %08x,%08x", dir, mask>>32, mask&(1<<32-1))
	add("%s/shared_cpu_list %s", dir, shared)
}

// addSysNode adds the files of a NUMA node.
func addSysNode(c *conformance.Choices, add func(string, ...any), dir string, node, nodes int) {
	add("%s/meminfo Node %d MemTotal:       %d kB\nNode %d MemFree:        1024 kB", dir, node, 1024*(1+c.Int(200)), node)
	var distances []string
	for other := range nodes {
		distance := 20 + c.Int(3)
		if other == node {
			distance = 10
		}
		distances = append(distances, fmt.Sprint(distance))
	}
	add("%s/distance %s", dir, strings.Join(distances, " "))
	for size := range c.Int(4) {
		add("%s/hugepages/hugepages-%dkB/nr_hugepages %d", dir, 2048<<(size*3), c.Int(100))
	}
}
