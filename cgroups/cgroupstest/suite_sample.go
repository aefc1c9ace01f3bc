// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// needSampler returns the driver as a cgroups.Sampler. It skips the test if the driver does not implement this interface.
func (t *trial) needSampler() cgroups.Sampler {
	t.Helper()
	s, ok := t.driver.(cgroups.Sampler)
	if !ok {
		t.Skip("the driver is no cgroups.Sampler")
	}
	return s
}

func (t *trial) readSample(p cgroups.Path, leaf string, parts cgroups.Parts) cgroups.Stats {
	t.Helper()
	s, err := t.needSampler().Sample(t.ctx, p, leaf, parts)
	t.Succeed(err, ruleSample, "Sample of "+string(p)+" "+leaf)
	return s
}

func checkSampleParts(t *trial) {
	t.needSampler()
	t.needControllers("memory", "pids")
	t.mustApply("a", cgroups.Resources{MemoryMax: new(int64(256 * mib)), PidsMax: new(int64(100))})
	pid := t.startProc("a", 24*mib)
	nothing := t.readSample("a", "", 0)
	t.Hold(reflect.DeepEqual(nothing, cgroups.Stats{}), ruleSample, "a sample of nothing has %+v", nothing)
	memory := t.readSample("a", "", cgroups.PartMemory)
	t.Hold(memory.Memory.Current >= 24*mib, ruleSample, "a sample has %d bytes of memory, want 24 MiB at least", memory.Memory.Current)
	t.Hold(memory.Pids.Current == 0 && memory.Memory.Peak == 0, ruleSample, "a sample of memory alone has %+v", memory)
	t.Hold(memory.Memory.Max == nil, ruleMaxRead, "a sample that was not asked for limits has some")
	limits := t.readSample("a", "", cgroups.PartMemoryLimit)
	t.requireLimit(limits.Memory.Max, 256*mib, ruleSample, "Max")
	t.Hold(limits.Memory.Current == 0, ruleSample, "a sample of limits has usage")
	t.requireLimit(t.readSample("a", "", cgroups.PartPidsLimit).Pids.Max, 100, ruleSample, "Pids.Max")
	checkSampleCPULimit(t)
	pids := t.readSample("a", "", cgroups.PartPids|cgroups.PartProcs)
	t.Hold(pids.Pids.Max == nil, ruleMaxRead, "a sample that was not asked for the limit of tasks has one")
	t.Hold(pids.Pids.Current > 0 && slices.Equal(pids.Pids.Procs, []int{pid}), ruleSample, "the processes are %+v, want %d", pids.Pids, pid)
	all, stats := t.readSample("a", "", cgroups.PartAll), t.readStats("a")
	t.Hold(all.Pids.Peak == stats.Pids.Peak && all.Memory.Peak >= all.Memory.Current, ruleSample, "a sample of all has %+v, the stats are %+v", all, stats)
}

// checkSampleCPULimit checks that a sample contains the CPU weight and quota that were applied.
func checkSampleCPULimit(t *trial) {
	t.Helper()
	if !slices.Contains(t.fixture.Controllers, "cpu") {
		return
	}
	t.mustApply("cpu", cgroups.Resources{CPUShares: 512, CPUQuota: 20_000, CPUPeriod: 50_000})
	t.Hold(t.readSample("cpu", "", cgroups.PartCPU).CPU.Limit == nil, ruleSample, "a sample that was not asked for the limit of CPU has one")
	l := t.readSample("cpu", "", cgroups.PartCPULimit).CPU.Limit
	t.Hold(l != nil && l.Quota == 20_000 && l.Period == 50_000, ruleSample, "the limit of CPU is %+v, want 20000 of 50000", l)
	if l != nil {
		t.Hold((l.Shares == 512) == (t.fixture.Mode == V1) && (l.Weight > 0) == (t.fixture.Mode == V2), ruleSample, "the share of CPU is %+v in mode %v", *l, t.fixture.Mode)
	}
}

func checkSampleChild(t *trial) {
	s := t.needSampler()
	t.needControllers("memory")
	t.mustApply("a/b", cgroups.Resources{})
	t.mustApply("a/c", cgroups.Resources{})
	t.startProc("a/b", 24*mib)
	leaves, err := s.ChildDirs(t.ctx, "a")
	t.Succeed(err, ruleChildDirs, "ChildDirs of a")
	t.Hold(len(leaves) == 2 && slices.IsSorted(leaves), ruleChildDirs, "the leaves of a are %q, want two", leaves)
	use := t.readSample("a/b", "", cgroups.PartMemory).Memory.Current
	var used []uint64
	for _, leaf := range leaves {
		used = append(used, t.readSample("a", leaf, cgroups.PartMemory).Memory.Current)
	}
	slices.Sort(used)
	t.Hold(used[0] < use/2 && used[1] > use/2, ruleSample, "the leaves use %d bytes, and the one with a process %d", used, use)
	for _, leaf := range []string{"..", ".", "b/d", "/b", "b\x00", "b\n"} {
		_, err := s.Sample(t.ctx, "a", leaf, cgroups.PartMemory)
		t.Hold(err != nil, ruleSample, "a leaf %q is sampled", leaf)
	}
}

func checkSampleAbsent(t *trial) {
	s := t.needSampler()
	t.mustApply("a", cgroups.Resources{})
	for _, leaf := range []string{"", "b"} {
		for _, parts := range []cgroups.Parts{0, cgroups.PartMemory, cgroups.PartAll} {
			p := cgroups.Path("a")
			if leaf == "" {
				p = "b"
			}
			_, err := s.Sample(t.ctx, p, leaf, parts)
			t.Hold(errors.Is(err, fs.ErrNotExist), ruleSampleGone, "a sample of what is absent, leaf %q: %v", leaf, err)
		}
	}
}

func checkReclaim(t *trial) {
	r, ok := t.driver.(cgroups.Reclaimer)
	if !ok {
		t.Skip("the driver is no cgroups.Reclaimer")
	}
	t.needControllers("memory")
	t.mustApply("a", cgroups.Resources{SwapMax: t.zeroSwapLimit()})
	t.startProc("a", 24*mib)
	freed, err := r.Reclaim(t.ctx, "a", 4096)
	if errors.Is(err, errors.ErrUnsupported) {
		return // as ruleReclaimV1 requires
	}
	t.Hold(t.fixture.Mode == V2, ruleReclaimV1, "v1 reclaims: %v", err)
	t.Succeed(err, ruleReclaim, "Reclaim")
	t.Hold(freed <= 24*mib, ruleReclaim, "Reclaim of a page has freed %d bytes", freed)
	if t.fixture.Swap { // the memory of the process cannot be swapped
		freed, err = r.Reclaim(t.ctx, "a", 1<<40)
		t.Succeed(err, ruleReclaim, "Reclaim of more than there is")
		t.Hold(freed < 24*mib, ruleReclaim, "Reclaim has freed %d bytes of a process without swap", freed)
	}
}

// zeroSwapLimit returns a pointer to zero, a limit that keeps processes in memory; nil if the host cannot limit swap.
func (t *trial) zeroSwapLimit() *int64 {
	if t.fixture.Swap {
		return new(int64)
	}
	return nil
}

// needWatcher returns the driver as a cgroups.Watcher. It skips the test if the driver or the host cannot watch memory events.
func (t *trial) needWatcher() cgroups.Watcher {
	t.Helper()
	w, ok := t.driver.(cgroups.Watcher)
	if !ok {
		t.Skip("the driver is no cgroups.Watcher")
	}
	t.needV2()
	t.needControllers("memory")
	return w
}

func checkWatchEvents(t *trial) {
	w := t.needWatcher()
	t.mustApply("a", cgroups.Resources{MemoryMax: new(int64(16 * mib)), SwapMax: t.zeroSwapLimit()})
	ctx, cancel := context.WithTimeout(t.ctx, t.fixture.Timeout)
	defer cancel()
	began := make(chan struct{})
	fired := make(chan cgroups.Trigger, 1000)
	done := make(chan error, 1)
	go func() {
		close(began)
		done <- w.Watch(ctx, "a", []cgroups.Trigger{{File: "memory.events"}}, func(trigger cgroups.Trigger) {
			select {
			case fired <- trigger:
			default:
			}
		})
	}()
	<-began
	t.Until(ruleWatch, func() (bool, string) {
		t.startProc("a", 64*mib) // the process is killed
		select {
		case trigger := <-fired:
			return trigger.File == "memory.events", "a trigger of " + trigger.File
		case <-time.After(poll):
			return false, "nothing has fired"
		}
	})
	cancel()
	t.Succeed(<-done, ruleWatchEnds, "Watch")
}

func checkWatchEnds(t *trial) {
	w := t.needWatcher()
	trigger := []cgroups.Trigger{{File: "memory.events"}}
	ignore := func(cgroups.Trigger) {}
	err := w.Watch(t.ctx, "b", trigger, ignore)
	t.Hold(errors.Is(err, fs.ErrNotExist), ruleWatchEnds, "Watch of what is absent: %v", err)
	t.Hold(w.Watch(t.ctx, "b", nil, ignore) != nil, ruleWatch, "Watch without triggers succeeds")
	t.mustApply("a", cgroups.Resources{})
	ctx, cancel := context.WithTimeout(t.ctx, 200*poll) // Watch must start before that
	defer cancel()
	t.Succeed(w.Watch(ctx, "a", trigger, ignore), ruleWatchEnds, "Watch whose context ends")

	done := make(chan error, 1)
	go func() { done <- w.Watch(t.ctx, "a", trigger, ignore) }()
	time.Sleep(10 * poll) // Watch most likely waits by then; otherwise the cgroup is absent when it starts
	t.mustRemove("a")
	select {
	case err := <-done:
		t.Hold(errors.Is(err, fs.ErrNotExist), ruleWatchEnds, "Watch of what was removed: %v", err)
	case <-time.After(t.fixture.Timeout):
		t.Hold(false, ruleWatchEnds, "Watch goes on after its cgroup was removed")
	}
}
