// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/mounttest"
)

// twoPayloads returns two payloads of a volume with the given number of files of 1 KiB.
func twoPayloads(files int) (both [2]map[string]projected) {
	for i := range both {
		both[i] = map[string]projected{}
		for n := range files {
			both[i][fmt.Sprintf("file-%d", n)] = projected{Content: strings.Repeat(fmt.Sprint(i), 1024), Mode: 0o644}
		}
	}
	return both
}

// atomicWriters are the kubelet's writer and ours. Each benchmark uses its own directory.
var atomicWriters = []struct {
	name  string
	write func(dir string, payload map[string]projected, perms func()) error
}{{"kubelet", kubeletWrite}, {"ours", ourWrite}}

func BenchmarkAtomicWriter(b *testing.B) {
	for _, files := range []int{3, 100} {
		for _, changed := range []bool{false, true} {
			for _, side := range atomicWriters {
				b.Run(fmt.Sprintf("files=%d/changed=%v/%s", files, changed, side.name), func(b *testing.B) {
					benchmarkWrites(b, files, changed, side.write)
				})
			}
		}
	}
}

// tmpfsDir returns a directory on tmpfs: a disk that other processes use would take longer than the measured code.
func tmpfsDir(b *testing.B) string {
	mounttest.Need(b)
	dir := b.TempDir()
	must(unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	b.Cleanup(func() { must(unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// benchmarkWrites measures writes of one unchanged payload, or of two alternating payloads.
func benchmarkWrites(b *testing.B, files int, changed bool, write func(string, map[string]projected, func()) error) {
	dir, both := tmpfsDir(b), twoPayloads(files)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		payload := both[0]
		if changed {
			payload = both[i%2]
		}
		if err := write(dir, payload, func() {}); err != nil {
			b.Fatal(err)
		}
	}
}

// An unchanged payload takes at most half of the kubelet's time, and a changed one at most the same time.
func TestAtomicWriterSpeed(t *testing.T) {
	if !*speed {
		t.Skip("without -speed")
	}
	for _, files := range []int{3, 100} {
		for _, changed := range []bool{false, true} {
			limit := map[bool]float64{false: 0.5, true: 1}[changed]
			ratio := bestRatio(20, func(side int) testing.BenchmarkResult {
				return testing.Benchmark(func(b *testing.B) { benchmarkWrites(b, files, changed, atomicWriters[side].write) })
			})
			fmt.Printf("AtomicWriter, %3d files, changed %-5v: %.2f of the kubelet's time\n", files, changed, ratio)
			if ratio > limit {
				t.Errorf("%d files, changed %v: %.2f of the kubelet's time, want at most %v", files, changed, ratio, limit)
			}
		}
	}
}

// bestRatio measures both sides alternately, and returns our best time divided by the kubelet's best time.
func bestRatio(turns int, measure func(side int) testing.BenchmarkResult) float64 {
	var best [2]float64
	for range turns {
		for side := range best {
			if ns := perOp(measure(side)); best[side] == 0 || ns < best[side] {
				best[side] = ns
			}
		}
	}
	return best[1] / best[0]
}
