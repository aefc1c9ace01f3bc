// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups_test

import (
	"testing"

	"github.com/seed81659283/nodeagent/cgroups"
)

func BenchmarkParse(b *testing.B) {
	v2, v1 := files(b, "v2.txtar"), files(b, "v1.txtar")
	for _, bm := range []struct {
		name  string
		parse func() error
	}{
		{"cpu.max", func() error { _, _, err := cgroups.ParseCPUMax(v2["cpu.max"]); return err }},
		{"cpu.stat", func() error { _, err := cgroups.ParseCPUStat(v2["cpu.stat"]); return err }},
		{"memory.stat", func() error { _, err := cgroups.ParseMemoryStat(v2["memory.stat"]); return err }},
		{"memory.stat-v1", func() error { _, err := cgroups.ParseMemoryStat(v1["memory.stat"]); return err }},
		{"memory.events", func() error { _, err := cgroups.ParseMemoryEvents(v2["memory.events"]); return err }},
		{"cpu.pressure", func() error { _, err := cgroups.ParsePressure(v2["cpu.pressure"]); return err }},
		{"io.stat", func() error { _, err := cgroups.ParseIOStat(v2["io.stat"]); return err }},
		{"cgroup.procs", func() error { _, err := cgroups.ParsePIDs(v2["cgroup.procs"]); return err }},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := bm.parse(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkName(b *testing.B) {
	p := cgroups.PodPath("", cgroups.Burstable, "0b7a4c3e-5d3f-4a51-9b8c-1f2e3d4c5b6a")
	b.Run("Systemd", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := p.Systemd(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("PodUID", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := cgroups.PodUID("", p); !ok {
				b.Fatal(p)
			}
		}
	})
}

func BenchmarkForPod(b *testing.B) {
	pod := cgroups.PodResources{
		QOS: cgroups.Burstable, CPURequest: 100, CPULimit: 200, CPULimited: true, MemoryLimit: 1 << 28, MemoryLimited: true,
	}
	node := cgroups.PodOptions{PidsMax: 1024, HugepageSizes: []string{"2MB", "1GB"}}
	b.ReportAllocs()
	for b.Loop() {
		_ = cgroups.ForPod(pod, node)
	}
}

func BenchmarkWeight(b *testing.B) {
	b.Run("FromShares", func(b *testing.B) {
		for b.Loop() {
			_ = cgroups.WeightFromShares(512, cgroups.WeightLogQuadratic)
		}
	})
	b.Run("ToShares", func(b *testing.B) {
		for b.Loop() {
			_ = cgroups.SharesFromWeight(59, cgroups.WeightLogQuadratic)
		}
	})
}
