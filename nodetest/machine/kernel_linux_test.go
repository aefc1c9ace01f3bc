// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// The model agrees with the kernel on which the test runs in at least so many of the generated scenarios.
const (
	scenarios    = 20
	mustAgree    = 18
	tolerance    = 0.10 // of CPU time and throttled time
	trialCgroup  = cgroups.Path("nodetest-trial")
	trialSeconds = 3
	tick         = 10 * time.Millisecond // of User Mode Linux
)

// openKernel opens cgroup v2 of this kernel. The test is skipped where there is none, as outside of hack/vm.
func openKernel(t *testing.T) *driver.Driver {
	t.Helper()
	if os.Getuid() != 0 || os.Getenv("IN_TEST_VM") == "" {
		t.Skip("needs a kernel with cgroup v2 of its own, see hack/vm")
	}
	d, err := driver.Open(t.Context(), driver.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// child is a cgroup of a scenario, with one process that keeps threads busy or works in bursts.
type child struct {
	path    cgroups.Path
	limits  cgroups.Resources
	threads int
	burst   int     // milliseconds of each burst; zero: all threads are busy
	demand  float64 // CPUs of the process that works in bursts, for the model
}

// work makes the worker use CPU time as the child does.
func (c *child) work(w *worker) {
	if c.burst > 0 {
		w.send("burst %d", c.burst)
		return
	}
	w.send("spin %d", c.threads)
}

// cpus returns the demand of the process of the child in the model.
func (c *child) cpus() float64 {
	if c.burst > 0 {
		return c.demand
	}
	return float64(c.threads)
}

// generateCPU returns two to four cgroups, some in a common parent, with weights, quotas and one to three busy threads.
func generateCPU(random *rand.Rand, cpus int) (list []child, parents map[cgroups.Path]cgroups.Resources) {
	parents = map[cgroups.Path]cgroups.Resources{trialCgroup: {}}
	resources := func() cgroups.Resources {
		r := cgroups.Resources{CPUShares: []uint64{102, 256, 512, 1024, 2048}[random.IntN(5)]}
		if random.IntN(3) == 0 {
			r.CPUQuota, r.CPUPeriod = int64(10_000*(2+random.IntN(7*cpus))), cgroups.DefaultPeriod
		}
		return r
	}
	for i := range 2 + random.IntN(3) {
		parent := trialCgroup
		if random.IntN(2) == 0 {
			parent = trialCgroup.Join("pod")
			if _, ok := parents[parent]; !ok {
				parents[parent] = resources()
			}
		}
		list = append(list, child{path: parent.Join(fmt.Sprint("c", i)), limits: resources(), threads: 1 + random.IntN(3)})
	}
	return list, parents
}

// describe returns the limits of a scenario, for a failed trial.
func describe(list []child, parents map[cgroups.Path]cgroups.Resources) string {
	var b strings.Builder
	for p, r := range parents {
		fmt.Fprintf(&b, "%s: %v\n", p, r)
	}
	for _, c := range list {
		fmt.Fprintf(&b, "%s: %v, %d threads\n", c.path, c.limits, c.threads)
	}
	return b.String()
}

// CPU time and throttled time of the processes of generated cgroups are those that the kernel measures.
func TestIntegrationKernelDividesCPUsAsTheModel(t *testing.T) {
	d := openKernel(t)
	agreed := 0
	for seed := range uint64(scenarios) {
		list, parents := generateCPU(rand.New(rand.NewPCG(seed, 1)), runtime.NumCPU())
		measured := measureCPU(t, d, list, parents)
		model := modelCPU(t, list, parents)
		ok := true
		for i := range list {
			ok = ok && isNear(measured[i].Usage, model[i].Usage) && isNear(measured[i].ThrottledTime, model[i].ThrottledTime)
		}
		if ok {
			agreed++
			continue
		}
		t.Logf("scenario %d differs\n%s", seed, describe(list, parents))
		for i := range list {
			t.Logf("%s: kernel %v used, throttled %v in %d of %d; model %v used, throttled %v in %d of %d", list[i].path,
				time.Duration(measured[i].Usage), time.Duration(measured[i].ThrottledTime), measured[i].Throttled, measured[i].Periods,
				time.Duration(model[i].Usage), time.Duration(model[i].ThrottledTime), model[i].Throttled, model[i].Periods)
		}
	}
	t.Logf("%d of %d scenarios agree", agreed, scenarios)
	assert.GreaterOrEqual(t, agreed, mustAgree)
}

// isNear reports whether two durations in nanoseconds differ by at most the tolerance, or by a part of a period.
func isNear(a, b uint64) bool {
	difference := math.Abs(float64(a) - float64(b))
	return difference <= tolerance*max(float64(a), float64(b)) || difference < tolerance*trialSeconds*1e9/4
}

// A cgroup with a quota beside a process that works in bursts is throttled as long as beside one of the model that uses the same CPU time evenly. The
// period of the bursts, three times their length, is no near multiple of that of the quota: such bursts meet the same part of each period.
func TestIntegrationKernelThrottlesBesideBurstsAsTheModel(t *testing.T) {
	d := openKernel(t)
	limited := child{path: trialCgroup.Join("limited"), limits: cgroups.Resources{CPUShares: 1024, CPUQuota: 25_000, CPUPeriod: cgroups.DefaultPeriod}, threads: 1}
	bursts := child{path: trialCgroup.Join("bursts"), limits: cgroups.Resources{CPUShares: 1024}}
	parents := map[cgroups.Path]cgroups.Resources{trialCgroup: {}}
	for _, milliseconds := range []int{3, 11, 47, 113} {
		bursts.burst = milliseconds
		measured := measureCPU(t, d, []child{limited, bursts}, parents)
		bursts.demand = float64(measured[1].Usage) / 1e9 / trialSeconds
		model := modelCPU(t, []child{limited, bursts}, parents)
		t.Logf("bursts of %d ms, %.2f CPUs: kernel throttled %v, model %v", milliseconds, bursts.demand,
			time.Duration(measured[0].ThrottledTime), time.Duration(model[0].ThrottledTime))
		assert.InEpsilon(t, float64(model[0].ThrottledTime), float64(measured[0].ThrottledTime), tolerance, "throttled time beside bursts of %d ms", milliseconds)
	}
}

// measureCPU runs the scenario on the kernel.
func measureCPU(t *testing.T, d *driver.Driver, list []child, parents map[cgroups.Path]cgroups.Resources) (stats []cgroups.CPUStat) {
	t.Helper()
	ctx := t.Context()
	defer func() { require.NoError(t, d.Remove(context.WithoutCancel(ctx), trialCgroup)) }()
	for p, r := range parents {
		require.NoError(t, d.Apply(ctx, p, r))
	}
	workers := make([]*worker, len(list))
	for i, c := range list {
		require.NoError(t, d.Apply(ctx, c.path, c.limits))
		workers[i] = startWorker(t, c.path, c.threads)
	}
	defer func() {
		for _, w := range workers {
			w.stop()
		}
	}()
	for i, c := range list {
		c.work(workers[i])
	}
	time.Sleep(500 * time.Millisecond) // until all threads run
	before := readCPU(t, d, list)
	began := time.Now()
	time.Sleep(trialSeconds * time.Second)
	scale := trialSeconds / time.Since(began).Seconds()
	for i, after := range readCPU(t, d, list) {
		stats = append(stats, cgroups.CPUStat{
			Usage: uint64(scale * float64(after.Usage-before[i].Usage)), ThrottledTime: uint64(scale * float64(after.ThrottledTime-before[i].ThrottledTime)),
			Throttled: after.Throttled - before[i].Throttled, Periods: after.Periods - before[i].Periods,
		})
	}
	return stats
}

// reader reads the usage of cgroups.
type reader interface {
	Stats(ctx context.Context, p cgroups.Path) (cgroups.Stats, error)
}

func readCPU(t *testing.T, d reader, list []child) (stats []cgroups.CPUStat) {
	t.Helper()
	for _, c := range list {
		s, err := d.Stats(t.Context(), c.path)
		require.NoError(t, err)
		stats = append(stats, s.CPU)
	}
	return stats
}

// modelCPU runs the scenario on the model.
func modelCPU(t *testing.T, list []child, parents map[cgroups.Path]cgroups.Resources) []cgroups.CPUStat {
	t.Helper()
	m, err := machine.New(machine.Spec{CPUs: runtime.NumCPU(), Tick: tick})
	require.NoError(t, err)
	for p, r := range parents {
		require.NoError(t, m.Cgroups().Apply(t.Context(), p, r))
	}
	for _, c := range list {
		require.NoError(t, m.Cgroups().Apply(t.Context(), c.path, c.limits))
		pid, err := m.Start(machine.Process{Cgroup: c.path})
		require.NoError(t, err)
		require.NoError(t, m.SetDemand(pid, machine.Demand{CPU: c.cpus()}))
	}
	m.Step(trialSeconds * time.Second)
	return readCPU(t, m.Cgroups(), list)
}

// memoryProcess is a process of a generated scenario of memory, in a cgroup of its own.
type memoryProcess struct {
	path  cgroups.Path
	limit int64 // bytes: memory.max; zero: none
	adj   int
	sizes []int64 // MiB, one per round
}

// generateMemory returns three to five processes that grow in rounds below a common memory.max.
func generateMemory(random *rand.Rand) (list []memoryProcess, limit int64) {
	for i := range 3 + random.IntN(3) {
		p := memoryProcess{path: trialCgroup.Join(fmt.Sprint("p", i)), adj: []int{-997, 0, 200, 500, 800, 1000}[random.IntN(6)]}
		if random.IntN(4) == 0 {
			p.limit = int64(20+random.IntN(60)) << 20
		}
		size := int64(5 + random.IntN(20))
		for range 4 {
			p.sizes = append(p.sizes, size)
			size += int64(random.IntN(30))
		}
		list = append(list, p)
	}
	return list, int64(80+random.IntN(80)) << 20
}

// The OOM killer of the kernel ends the same processes in the same order.
func TestIntegrationKernelKillsAsTheModel(t *testing.T) {
	d := openKernel(t)
	agreed := 0
	for seed := range uint64(scenarios) {
		list, limit := generateMemory(rand.New(rand.NewPCG(seed, 2)))
		measured, base := measureKills(t, d, list, limit)
		model := modelKills(t, list, limit, base)
		if measured == model {
			agreed++
			continue
		}
		t.Logf("scenario %d differs: limit %d MiB, %d KiB of each worker, %+v\nkernel: %s\nmodel:  %s", seed, limit>>20, base>>10, list, measured, model)
	}
	t.Logf("%d of %d scenarios agree", agreed, scenarios)
	assert.GreaterOrEqual(t, agreed, mustAgree)
}

// measureKills runs the scenario on the kernel. It returns the rounds with the killed processes, and the memory of a worker that has not
// grown yet.
func measureKills(t *testing.T, d *driver.Driver, list []memoryProcess, limit int64) (kills string, base int64) {
	t.Helper()
	ctx := t.Context()
	defer func() { require.NoError(t, d.Remove(context.WithoutCancel(ctx), trialCgroup)) }()
	require.NoError(t, d.Apply(ctx, trialCgroup, cgroups.Resources{MemoryMax: &limit}))
	workers := make([]*worker, len(list))
	for i, p := range list {
		require.NoError(t, d.Apply(ctx, p.path, p.resources()))
		workers[i] = startWorker(t, p.path, 1)
		workers[i].setOOMScoreAdj(p.adj)
	}
	defer func() {
		for _, w := range workers {
			w.stop()
		}
	}()
	time.Sleep(100 * time.Millisecond)
	s, err := d.Stats(ctx, trialCgroup)
	require.NoError(t, err)
	base = int64(s.Memory.Current) / int64(len(list))
	dead := make([]bool, len(list))
	for round := range list[0].sizes {
		for i, p := range list {
			if dead[i] {
				continue
			}
			workers[i].send("memory %d", p.sizes[round]<<20)
			workers[i].await()
			time.Sleep(20 * time.Millisecond) // a killed process has freed its memory
			for j := range list {             // in the order of names, as kills of one step have no other
				if !dead[j] && workers[j].isKilled() {
					dead[j] = true
					kills += fmt.Sprintf("%d/%d:%s ", round, i, list[j].path.Base())
				}
			}
		}
	}
	return kills, base
}

// resources returns the limits of the cgroup of p.
func (p *memoryProcess) resources() (r cgroups.Resources) {
	if p.limit > 0 {
		r.MemoryMax = &p.limit
	}
	return r
}

// modelKills runs the scenario on the model, where each process has base bytes of memory before it grows.
func modelKills(t *testing.T, list []memoryProcess, limit, base int64) (kills string) {
	t.Helper()
	dead := map[string]bool{}
	var killed []string // of one step
	m, err := machine.New(machine.Spec{Killed: func(k cgroupstest.KilledProc) {
		dead[k.Name] = true
		killed = append(killed, k.Name)
	}})
	require.NoError(t, err)
	require.NoError(t, m.Cgroups().Apply(t.Context(), trialCgroup, cgroups.Resources{MemoryMax: &limit}))
	pids := make([]int, len(list))
	for i, p := range list {
		require.NoError(t, m.Cgroups().Apply(t.Context(), p.path, p.resources()))
		pids[i], err = m.Start(machine.Process{Cgroup: p.path, Name: p.path.Base(), OOMScoreAdj: p.adj})
		require.NoError(t, err)
		require.NoError(t, m.SetDemand(pids[i], machine.Demand{Memory: base}))
	}
	m.Step(0)
	for round := range list[0].sizes {
		for i, p := range list {
			if dead[p.path.Base()] {
				continue
			}
			require.NoError(t, m.SetDemand(pids[i], machine.Demand{Memory: base + p.sizes[round]<<20}))
			m.Step(0)
			slices.Sort(killed)
			for _, name := range killed {
				kills += fmt.Sprintf("%d/%d:%s ", round, i, name)
			}
			killed = nil
		}
	}
	return kills
}

// Above memory.high a process grows as slowly as the kernel lets it.
func TestIntegrationKernelDelaysMemoryAsTheModel(t *testing.T) {
	d := openKernel(t)
	ctx := t.Context()
	const high, wanted = 32 << 20, 128 << 20
	require.NoError(t, d.Apply(ctx, trialCgroup, cgroups.Resources{MemoryHigh: new(int64(high)), SwapMax: new(int64(0))}))
	defer func() { require.NoError(t, d.Remove(context.WithoutCancel(ctx), trialCgroup)) }()
	w := startWorker(t, trialCgroup, 1)
	s, err := d.Stats(ctx, trialCgroup)
	require.NoError(t, err)
	base := int64(s.Memory.Current)
	w.send("memory %d", wanted)

	m, err := machine.New(machine.Spec{})
	require.NoError(t, err)
	require.NoError(t, m.Cgroups().Apply(ctx, trialCgroup, cgroups.Resources{MemoryHigh: new(int64(high))}))
	pid, err := m.Start(machine.Process{Cgroup: trialCgroup})
	require.NoError(t, err)
	require.NoError(t, m.SetDemand(pid, machine.Demand{Memory: base + wanted}))
	for second := range 8 { // the first second is that in which the worker touches its first pages
		time.Sleep(time.Second)
		m.Step(time.Second)
		measured, err := d.Stats(ctx, trialCgroup)
		require.NoError(t, err)
		model, err := m.Cgroups().Stats(ctx, trialCgroup)
		require.NoError(t, err)
		t.Logf("after %d s: kernel %.1f MiB, model %.1f MiB", second+1, float64(measured.Memory.Current)/(1<<20), float64(model.Memory.Current)/(1<<20))
		if second > 0 {
			assert.InDelta(t, float64(model.Memory.Current), float64(measured.Memory.Current), tolerance*float64(model.Memory.Current))
		}
	}
}
