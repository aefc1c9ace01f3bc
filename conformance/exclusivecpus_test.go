// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	kubelettopology "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/utils/cpuset"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
)

func TestTakeCPUs(t *testing.T) { run(t, takeCPUs) }
func FuzzTakeCPUs(f *testing.F) { fuzz(f, takeCPUs) }

// takeInput is a request for exclusive CPUs.
type takeInput struct {
	Machine topology.Machine
	Free    string
	Count   int
	Options cpus.Options
}

func (in takeInput) free() topology.CPUSet {
	free, err := topology.ParseCPUSet(in.Free)
	if err != nil {
		panic(err) // the text of a set
	}
	return free
}

// maxSpreadNodes is the largest number of NUMA nodes of a machine whose CPUs are spread: with more, the kubelet may overwrite its choice.
const maxSpreadNodes = 4

// makeTakeInput returns a request on a machine whose NUMA nodes are parts or groups of sockets. If a node and a socket overlap, the kubelet may count
// CPUs twice.
func makeTakeInput(c *conformance.Choices) takeInput {
	in := takeInput{Options: cpus.Options{WholeCores: c.OneIn(2)}}
	switch c.Int(4) {
	case 1:
		in.Options.SpreadNodes, in.Options.AlignSocket = true, c.OneIn(3)
	case 2:
		in.Options.AlignCaches = true
	case 3:
		in.Options.WholeCores, in.Options.SpreadCores = false, true
	}
	in.Machine = makeTakeMachine(c, in.Options.SpreadNodes)
	if c.OneIn(4) && !in.Options.SpreadNodes && len(in.Machine.CPUs) > 2 { // CPUs that are offline: cores, caches, nodes and sockets have different sizes
		in.Machine.CPUs = slices.DeleteFunc(in.Machine.CPUs, func(cpu topology.CPU) bool { return cpu.ID != cpu.Core && c.OneIn(8) })
	}
	free, used := in.Machine.Set(), c.Int(5)
	for _, cpu := range in.Machine.CPUs {
		if used > 0 && c.OneIn(6-used) {
			drop := topology.NewCPUSet(cpu.ID)
			if in.Options.SpreadNodes && in.Options.WholeCores {
				drop = coreOf(&in.Machine, cpu.Core) // if nodes have odd numbers of free CPUs, the kubelet may search without end
			}
			free = free.Minus(drop)
		}
	}
	in.Free, in.Count = free.String(), c.Int(min(255, free.Len()+2))
	return in
}

// coreOf returns the CPUs of a core.
func coreOf(machine *topology.Machine, core int) (set topology.CPUSet) {
	for _, cpu := range machine.CPUs {
		if cpu.Core == core {
			set.Add(cpu.ID)
		}
	}
	return set
}

// makeTakeMachine returns a machine with numbers of CPUs as usual on x86 (first one thread of each core), or with consecutive threads.
func makeTakeMachine(c *conformance.Choices, spread bool) topology.Machine {
	sockets, nodes := 1+c.Int(4), 1
	if c.OneIn(2) {
		nodes = sockets
	} else if !c.OneIn(3) {
		nodes = sockets * (1 + c.Int(4))
	} else if sockets%2 == 0 {
		nodes = sockets / 2
	}
	if spread && nodes > maxSpreadNodes {
		nodes = sockets
	}
	perNode, threads := 1+c.Int(3), 1+c.Int(2) // last-level caches of a NUMA node, or of a socket if it is smaller
	caches := max(1, nodes/sockets) * perNode  // of a socket
	perSocket := caches * (1 + c.Int(3))       // cores
	if c.OneIn(3) {
		caches = 1 // not known
	}
	machine, err := topology.Parse(fmt.Sprintf("%d sockets %d nodes %d cores %d threads %d caches", sockets, nodes, perSocket, threads, caches))
	if err != nil {
		panic(err)
	}
	if c.OneIn(2) && threads > 1 { // consecutive threads
		half := len(machine.CPUs) / 2
		for i := range machine.CPUs {
			cpu := &machine.CPUs[i]
			cpu.ID, cpu.Core = cpu.ID%half*2+cpu.ID/half, cpu.Core*2
		}
		slices.SortFunc(machine.CPUs, func(a, b topology.CPU) int { return a.ID - b.ID })
	}
	return *machine
}

// kubeletTopology converts a machine to the kubelet's type.
func kubeletTopology(machine *topology.Machine) *kubelettopology.CPUTopology {
	out := &kubelettopology.CPUTopology{NumCPUs: len(machine.CPUs), CPUDetails: kubelettopology.CPUDetails{}}
	for _, cpu := range machine.CPUs {
		out.CPUDetails[cpu.ID] = kubelettopology.CPUInfo{NUMANodeID: cpu.Node, SocketID: cpu.Socket, CoreID: cpu.Core, UncoreCacheID: cpu.Cache}
	}
	d := out.CPUDetails
	out.NumCores, out.NumSockets, out.NumNUMANodes, out.NumUncoreCache = d.Cores().Size(), d.Sockets().Size(), d.NUMANodes().Size(), d.UncoreCaches().Size()
	return out
}

// kubeletOptions converts the options to the kubelet's type.
func kubeletOptions(o cpus.Options) cpumanager.StaticPolicyOptions {
	return cpumanager.StaticPolicyOptions{
		FullPhysicalCPUsOnly: o.WholeCores, DistributeCPUsAcrossNUMA: o.SpreadNodes, DistributeCPUsAcrossCores: o.SpreadCores,
		AlignBySocket: o.AlignSocket, PreferAlignByUncoreCacheOption: o.AlignCaches,
	}
}

// takeResult has the taken CPUs, or the error.
type takeResult struct{ CPUs, Error string }

func newTakeResult(taken string, err error) takeResult {
	if err != nil {
		return takeResult{Error: err.Error()}
	}
	return takeResult{CPUs: taken}
}

var takeCPUs = conformance.Comparison[takeInput, takeResult]{
	Make: makeTakeInput,
	Kubelet: func(in takeInput) takeResult {
		free, err := cpuset.Parse(in.Free)
		if err != nil {
			panic(err)
		}
		taken, err := cpumanager.ConformanceTake(kubeletTopology(&in.Machine), free, in.Count, kubeletOptions(in.Options))
		return newTakeResult(taken.String(), err)
	},
	Ours: func(in takeInput) takeResult {
		layout, err := cpus.NewLayout(&in.Machine)
		if err != nil {
			panic(err)
		}
		taken, err := layout.Take(in.free(), in.Count, in.Options)
		return newTakeResult(taken.String(), err)
	},
	Exceptions: []conformance.Exception[takeInput, takeResult]{{
		Name: "partly used", Reason: "a CPU that is not free is never taken",
		When: hasPartlyUsedAverage,
	}},
}

// hasPartlyUsedAverage reports whether a core or socket that is partly used has as many free CPUs as an average one. The kubelet then takes all CPUs of it.
func hasPartlyUsedAverage(in takeInput) bool {
	machine := kubeletTopology(&in.Machine)
	free := in.free()
	for _, level := range []struct {
		average int
		id      func(topology.CPU) int
	}{
		{machine.CPUsPerCore(), func(c topology.CPU) int { return c.Core }},
		{machine.CPUsPerSocket(), func(c topology.CPU) int { return c.Socket }},
	} {
		all, unused := map[int]int{}, map[int]int{}
		for _, cpu := range in.Machine.CPUs {
			all[level.id(cpu)]++
			if free.Has(cpu.ID) {
				unused[level.id(cpu)]++
			}
		}
		for id, count := range unused {
			if count == level.average && count < all[id] {
				return true
			}
		}
	}
	return false
}

// Compares the choice of half of the free CPUs, of which some are in use, on machines of 2 to 512 CPUs.
func BenchmarkTakeCPUs(b *testing.B) {
	for _, text := range []string{
		"1 socket 1 node 1 core 2 threads", "1 socket 1 node 8 cores 2 threads", "2 sockets 2 nodes 32 cores 2 threads 4 caches", "2 sockets 4 nodes 128 cores 2 threads 16 caches",
	} {
		machine, err := topology.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		layout, err := cpus.NewLayout(machine)
		if err != nil {
			b.Fatal(err)
		}
		free := machine.Set()
		for id := 3; id < len(machine.CPUs); id += 7 {
			free = free.Minus(topology.NewCPUSet(id))
		}
		theirs, theirFree := kubeletTopology(machine), cpuset.New(slices.Collect(free.All())...)
		for _, opts := range []cpus.Options{{}, {WholeCores: true, SpreadNodes: true}, {AlignCaches: true}} {
			name, count := fmt.Sprintf("%d CPUs %+v", len(machine.CPUs), opts), max(1, free.Len()/4*2)
			b.Run(name+"/kubelet", func(b *testing.B) {
				for b.Loop() {
					if _, err := cpumanager.ConformanceTake(theirs, theirFree, count, kubeletOptions(opts)); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/ours", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := layout.Take(free, count, opts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
