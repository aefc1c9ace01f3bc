// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// cpuSpeedCase is an operation of both sides on one machine.
type cpuSpeedCase struct {
	name          string
	kubelet, ours func() // kubelet is nil where it would not return
}

// cpuSpeedCases returns the hints of a container that requests a quarter of the CPUs, and its reservation and release, on machines of 2 to 512 CPUs. The
// kubelet keeps its state in memory, without its file, which it would write and sync with each change. It has no hints of 34 NUMA nodes: it would try 17
// billion sets.
func cpuSpeedCases(t testing.TB) (cases []cpuSpeedCase) {
	for _, text := range []string{
		"1 socket 1 node 1 core 2 threads", "1 socket 1 node 8 cores 2 threads", "2 sockets 2 nodes 32 cores 2 threads", "2 sockets 8 nodes 128 cores 2 threads",
		"2 sockets 34 nodes 119 cores 2 threads",
	} {
		machine, err := topology.Parse(text)
		require.NoError(t, err)
		config := cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000}
		theirs, ours := &kubeletCPUs{}, &ourCPUs{}
		require.NoError(t, theirs.start(machine, config))
		require.NoError(t, ours.start(machine, config))
		for i := range 20 {
			other := &cpus.Pod{UID: fmt.Sprint("other", i), Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: int64(len(machine.CPUs)/64) * 1000}}}
			require.NoError(t, theirs.reserve(other, 0, 0))
			require.NoError(t, ours.reserve(other, 0, 0))
		}
		pod := &cpus.Pod{UID: "a", Guaranteed: true, Containers: []cpus.Container{{Name: "app", Millis: int64(max(1, len(machine.CPUs)/4)) * 1000}}}
		name := fmt.Sprintf("%d CPUs %d nodes", len(machine.CPUs), len(machine.Nodes))
		hints := cpuSpeedCase{name: name + " hints", kubelet: theirs.preparedHints(pod), ours: func() { ours.policy.Hints(ours.state, pod, 0) }}
		if len(machine.Nodes) > device.MaxHintNodes {
			hints.kubelet = nil
		}
		core := toCorePod(pod)
		reserve := cpuSpeedCase{
			name: name + " reserve",
			kubelet: func() {
				require.NoError(t, theirs.allocate(core, &core.Spec.Containers[0]))
				theirs.remove(pod, 0)
			},
			ours: func() {
				require.NoError(t, ours.reserve(pod, 0, 0))
				ours.state = ours.policy.Release(ours.state, pod.UID)
			},
		}
		cases = append(cases, hints, reserve)
	}
	return cases
}

func BenchmarkExclusiveCPUs(b *testing.B) {
	for _, c := range cpuSpeedCases(b) {
		for side, run := range map[string]func(){"kubelet": c.kubelet, "ours": c.ours} {
			if run == nil {
				continue
			}
			b.Run(c.name+"/"+side, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}

// Each operation is at least five times as fast as the kubelet's.
func TestExclusiveCPUsSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	const faster = 5
	for _, c := range cpuSpeedCases(t) {
		var best [2]float64
		for range 3 {
			for side, run := range []func(){c.kubelet, c.ours} {
				if run == nil {
					continue
				}
				took := perOp(testing.Benchmark(func(b *testing.B) {
					for b.Loop() {
						run()
					}
				}))
				if best[side] == 0 || took < best[side] {
					best[side] = took
				}
			}
		}
		fmt.Printf("%-30s kubelet %12.0f ns, ours %9.0f ns, %8.1fx\n", c.name, best[0], best[1], best[0]/best[1])
		if c.kubelet != nil && best[0] < faster*best[1] {
			t.Errorf("%s is %.1f times as fast as the kubelet's, want at least %d", c.name, best[0]/best[1], faster)
		}
	}
}
