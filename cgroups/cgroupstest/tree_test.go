// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
)

const mib = 1 << 20

func TestKilledCalledOncePerProcess(t *testing.T) {
	died := map[int]bool{}
	tree := cgroupstest.New(cgroupstest.Options{Memory: 64 * mib, Killed: func(k cgroupstest.KilledProc) {
		assert.False(t, died[k.PID], "process %d", k.PID)
		died[k.PID] = true
	}})
	require.NoError(t, tree.Apply(t.Context(), "a", cgroups.Resources{}))
	started := 0
	for range 50 {
		_, err := tree.Start(cgroupstest.Proc{Cgroup: "a", Memory: 10 * mib})
		require.NoError(t, err)
		started++
	}
	left, err := tree.Procs(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, left, 6, "remaining processes fit into the memory")
	assert.Len(t, died, started-len(left))
}

// The Killed hook may call the tree, for example to restart the killed process.
func TestKilledMayCallTheTree(t *testing.T) {
	var tree *cgroupstest.Tree
	restarts := 0
	tree = cgroupstest.New(cgroupstest.Options{Killed: func(k cgroupstest.KilledProc) {
		restarts++
		p := k.Proc
		p.Memory = mib
		_, err := tree.Start(p)
		require.NoError(t, err)
	}})
	limit := int64(10 * mib)
	require.NoError(t, tree.Apply(t.Context(), "a", cgroups.Resources{MemoryMax: &limit}))
	pid, err := tree.Start(cgroupstest.Proc{Cgroup: "a", Name: "web"})
	require.NoError(t, err)
	for range 3 {
		require.ErrorIs(t, tree.SetMemory(pid, 20*mib), syscall.ESRCH)
		pids, err := tree.Procs(t.Context(), "a")
		require.NoError(t, err)
		require.Len(t, pids, 1)
		require.NotEqual(t, pid, pids[0])
		pid = pids[0]
	}
	assert.Equal(t, 3, restarts)
}

func TestResultsShareNoMemoryWithTree(t *testing.T) {
	tree := cgroupstest.New(cgroupstest.Options{HugepageSizes: []string{"2MB"}})
	limit := int64(10 * mib)
	unified := map[string]string{"io.max": "8:0"}
	require.NoError(t, tree.Apply(t.Context(), "a", cgroups.Resources{MemoryMax: &limit, Unified: unified}))
	require.NoError(t, tree.AddIO("a", cgroups.IODevice{Major: 8, Reads: 1}))
	limit, unified["io.max"] = 5, "9:0"
	for range 2 {
		r, err := tree.Limits(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, int64(10*mib), *r.MemoryMax)
		require.Equal(t, "8:0", r.Unified["io.max"])
		require.Equal(t, int64(cgroups.Unlimited), r.Hugetlb["2MB"])
		require.False(t, *r.OOMGroup)
		*r.MemoryMax, r.Unified["io.max"], r.Hugetlb["2MB"], *r.OOMGroup = 5, "9:0", 5, true

		s, err := tree.Stats(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, uint64(1), s.IO.Devices[0].Reads)
		require.Zero(t, s.Memory.Pressure.Some.Avg10)
		s.IO.Devices[0].Reads, s.Memory.Pressure.Some.Avg10 = 5, 5
	}
}

// Random operations on a tree of three levels keep the invariants: usage is the sum of the descendants, no limit is exceeded, and
// the memory of the machine is enough.
func TestRandomOperationsKeepSumsAndLimits(t *testing.T) {
	for _, mode := range []cgroupstest.Mode{cgroupstest.V2, cgroupstest.V1} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprint(mode, "/", seed), func(t *testing.T) {
				w := newWorld(t, mode, seed)
				for range 200 {
					w.step()
					w.check("")
				}
			})
		}
	}
}

// world is a tree and its expected state.
type world struct {
	t     *testing.T
	tree  *cgroupstest.Tree
	rand  *rand.Rand
	alive map[int]cgroupstest.Proc
	pids  []int
}

func newWorld(t *testing.T, mode cgroupstest.Mode, seed uint64) *world {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 1)), alive: map[int]cgroupstest.Proc{}}
	w.tree = cgroupstest.New(cgroupstest.Options{Mode: mode, Memory: 200 * mib, Killed: func(k cgroupstest.KilledProc) {
		assert.Contains(t, w.alive, k.PID)
		assert.NotEqual(t, -1000, k.OOMScoreAdj)
		delete(w.alive, k.PID)
	}})
	for i := range 3 {
		for j := range 3 {
			require.NoError(t, w.tree.Apply(t.Context(), w.leaf(i, j), cgroups.Resources{}))
		}
	}
	return w
}

func (w *world) leaf(i, j int) cgroups.Path { return cgroups.Path(fmt.Sprintf("q%d/pod%d", i, j)) }

func (w *world) bytes(n int) int64 { return int64(w.rand.IntN(n*mib)) + 1 }

// step executes one random operation. Errors are allowed.
func (w *world) step() {
	leaf := w.leaf(w.rand.IntN(3), w.rand.IntN(3))
	switch w.rand.IntN(6) {
	case 0:
		pid, err := w.tree.Start(cgroupstest.Proc{Cgroup: leaf, OOMScoreAdj: w.rand.IntN(1998) - 999})
		if err == nil {
			w.alive[pid] = cgroupstest.Proc{}
			w.pids = append(w.pids, pid)
		}
	case 1, 2:
		if len(w.pids) > 0 {
			_ = w.tree.SetMemory(w.pids[w.rand.IntN(len(w.pids))], w.bytes(60))
		}
	case 3:
		_ = w.tree.SetCache(leaf, w.bytes(40))
	case 4:
		limit, low, high, pids := w.bytes(100), w.bytes(20), w.bytes(90), int64(w.rand.IntN(6))
		r := cgroups.Resources{MemoryMax: &limit, MemoryLow: &low, MemoryHigh: &high, PidsMax: &pids}
		if w.rand.IntN(2) == 0 {
			leaf = leaf.Parent()
		}
		_ = w.tree.Apply(w.t.Context(), leaf, r)
	case 5:
		if len(w.pids) > 0 {
			pid := w.pids[w.rand.IntN(len(w.pids))]
			if w.tree.Exit(pid) == nil {
				delete(w.alive, pid)
			}
		}
	}
}

// check compares the usage of a cgroup with the sum of its descendants.
func (w *world) check(p cgroups.Path) cgroups.Stats {
	ctx := w.t.Context()
	s, err := w.tree.Stats(ctx, p)
	require.NoError(w.t, err)
	children, err := w.tree.Children(ctx, p)
	require.NoError(w.t, err)
	var memory, cache, pids uint64
	for _, name := range children {
		below := w.check(p.Join(name))
		memory += below.Memory.Current
		cache += below.Memory.Stat.File
		pids += below.Pids.Current
	}
	if len(children) == 0 {
		cache = s.Memory.Stat.File
		memory += cache
		procs, err := w.tree.Procs(ctx, p)
		require.NoError(w.t, err)
		for _, pid := range procs {
			proc, ok := w.tree.Proc(pid)
			require.True(w.t, ok)
			require.Equal(w.t, p, proc.Cgroup)
			require.Contains(w.t, w.alive, pid)
			memory += uint64(proc.Memory)
		}
		pids = uint64(len(procs))
	}
	require.Equal(w.t, memory, s.Memory.Current, "memory of %q", p)
	require.Equal(w.t, cache, s.Memory.Stat.File, "cache of %q", p)
	require.Equal(w.t, pids, s.Pids.Current, "processes of %q", p)
	require.GreaterOrEqual(w.t, s.Memory.Peak, s.Memory.Current)
	require.Zero(w.t, s.Memory.Current%4096)
	limits, err := w.tree.Limits(ctx, p)
	require.NoError(w.t, err)
	if limits.MemoryMax != nil && *limits.MemoryMax != cgroups.Unlimited {
		require.LessOrEqual(w.t, int64(s.Memory.Current), *limits.MemoryMax, "memory of %q", p)
	}
	if p == "" {
		require.LessOrEqual(w.t, s.Memory.Current, uint64(200*mib))
		require.Len(w.t, w.alive, int(pids))
	}
	return s
}

func TestTreeIsSafeForConcurrentUse(t *testing.T) {
	var kills atomic.Int64
	tree := cgroupstest.New(cgroupstest.Options{Memory: 100 * mib, Killed: func(cgroupstest.KilledProc) { kills.Add(1) }})
	ctx := t.Context()
	var started atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := cgroups.Path(fmt.Sprintf("a/pod%d", i%4))
			for j := range 200 {
				limit := int64(30 * mib)
				assert.NoError(t, tree.Apply(ctx, p, cgroups.Resources{MemoryMax: &limit}))
				if _, err := tree.Start(cgroupstest.Proc{Cgroup: p, Memory: int64(j%20) * mib}); err == nil {
					started.Add(1)
				}
				_ = tree.AddCPU(p, cgroups.CPUStat{Usage: 1})
				_, err := tree.Stats(ctx, "")
				assert.NoError(t, err)
				if j%50 == 49 {
					assert.NoError(t, tree.Remove(ctx, p))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, tree.Remove(ctx, "a"))
	assert.Equal(t, started.Load(), kills.Load(), "every started process is killed")
	s, err := tree.Stats(ctx, "")
	require.NoError(t, err)
	assert.Zero(t, s.Memory.Current)
	assert.Zero(t, s.Pids.Current)
}

// BenchmarkLargeTree measures a node with a hundred thousand cgroups, each with a process that grows.
func BenchmarkLargeTree(b *testing.B) {
	const pods = 50_000
	ctx := b.Context()
	limit := int64(64 * mib)
	for b.Loop() {
		tree := cgroupstest.New(cgroupstest.Options{Memory: 1 << 40})
		for i := range pods {
			p := cgroups.Path("kubepods/burstable").Join(fmt.Sprintf("pod%d", i), "main")
			if err := tree.Apply(ctx, p, cgroups.Resources{CPUShares: 102, MemoryMax: &limit}); err != nil {
				b.Fatal(err)
			}
			pid, err := tree.Start(cgroupstest.Proc{Cgroup: p, Memory: mib})
			if err != nil {
				b.Fatal(err)
			}
			if err := tree.SetMemory(pid, 2*mib); err != nil {
				b.Fatal(err)
			}
		}
		if err := tree.Remove(ctx, "kubepods"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(2*pods), "ns/cgroup")
}

// BenchmarkStep measures one step of a simulation with a hundred thousand cgroups, and an OOM kill that visits all of them.
func BenchmarkStep(b *testing.B) {
	const pods = 50_000
	tree := cgroupstest.New(cgroupstest.Options{Memory: pods * 2 * mib})
	var pid int
	for i := range pods {
		p := cgroups.Path("kubepods/burstable").Join(fmt.Sprintf("pod%d", i), "main")
		if err := tree.Apply(b.Context(), p, cgroups.Resources{}); err != nil {
			b.Fatal(err)
		}
		pid, _ = tree.Start(cgroupstest.Proc{Cgroup: p, Memory: mib})
	}
	b.Run("memory", func(b *testing.B) {
		for b.Loop() {
			_ = tree.SetMemory(pid, 2*mib)
			_ = tree.SetMemory(pid, mib)
		}
	})
	b.Run("stats", func(b *testing.B) {
		for b.Loop() {
			_, _ = tree.Stats(b.Context(), "kubepods/burstable/pod7/main")
		}
	})
	b.Run("oom", func(b *testing.B) {
		for b.Loop() {
			victim, _ := tree.Start(cgroupstest.Proc{Cgroup: "kubepods/burstable/pod7/main", Memory: pods * 3 * mib})
			if _, ok := tree.Proc(victim); ok {
				b.Fatal("it lives")
			}
		}
	})
}
