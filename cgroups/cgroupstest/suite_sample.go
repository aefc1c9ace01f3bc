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

// sampler returns the driver as a Sampler.
func (t *trial) sampler() cgroups.Sampler {
	t.Helper()
	s, ok := t.d.(cgroups.Sampler)
	if !ok {
		t.Skip("the driver is no cgroups.Sampler")
	}
	return s
}

func (t *trial) sample(p cgroups.Path, leaf string, parts cgroups.Parts) cgroups.Stats {
	t.Helper()
	s, err := t.sampler().Sample(t.ctx, p, leaf, parts)
	t.Succeed(err, ruleSample, "Sample of "+string(p)+" "+leaf)
	return s
}

func sampleParts(t *trial) {
	t.sampler()
	t.need("memory", "pids")
	t.apply("a", cgroups.Resources{MemoryMax: new(int64(256 * mib)), PidsMax: new(int64(100))})
	pid := t.start("a", 24*mib)
	nothing := t.sample("a", "", 0)
	t.Hold(reflect.DeepEqual(nothing, cgroups.Stats{}), ruleSample, "a sample of nothing has %+v", nothing)
	memory := t.sample("a", "", cgroups.PartMemory)
	t.Hold(memory.Memory.Current >= 24*mib, ruleSample, "a sample has %d bytes of memory, want 24 MiB at least", memory.Memory.Current)
	t.Hold(memory.Pids.Current == 0 && memory.Memory.Peak == 0, ruleSample, "a sample of memory alone has %+v", memory)
	t.Hold(memory.Memory.Max == nil, ruleMaxRead, "a sample that was not asked for limits has some")
	limits := t.sample("a", "", cgroups.PartMemoryLimit)
	t.number(limits.Memory.Max, 256*mib, ruleSample, "Max")
	t.Hold(limits.Memory.Current == 0, ruleSample, "a sample of limits has usage")
	t.number(t.sample("a", "", cgroups.PartPidsLimit).Pids.Max, 100, ruleSample, "Pids.Max")
	sampleCPULimit(t)
	pids := t.sample("a", "", cgroups.PartPids|cgroups.PartProcs)
	t.Hold(pids.Pids.Max == nil, ruleMaxRead, "a sample that was not asked for the limit of tasks has one")
	t.Hold(pids.Pids.Current > 0 && slices.Equal(pids.Pids.Procs, []int{pid}), ruleSample, "the processes are %+v, want %d", pids.Pids, pid)
	all, stats := t.sample("a", "", cgroups.PartAll), t.stats("a")
	t.Hold(all.Pids.Peak == stats.Pids.Peak && all.Memory.Peak >= all.Memory.Current, ruleSample, "a sample of all has %+v, the stats are %+v", all, stats)
}

// sampleCPULimit checks how CPU time is said to be shared out.
func sampleCPULimit(t *trial) {
	t.Helper()
	if !slices.Contains(t.f.Controllers, "cpu") {
		return
	}
	t.apply("cpu", cgroups.Resources{CPUShares: 512, CPUQuota: 20_000, CPUPeriod: 50_000})
	t.Hold(t.sample("cpu", "", cgroups.PartCPU).CPU.Limit == nil, ruleSample, "a sample that was not asked for the limit of CPU has one")
	l := t.sample("cpu", "", cgroups.PartCPULimit).CPU.Limit
	t.Hold(l != nil && l.Quota == 20_000 && l.Period == 50_000, ruleSample, "the limit of CPU is %+v, want 20000 of 50000", l)
	if l != nil {
		t.Hold((l.Shares == 512) == (t.f.Mode == V1) && (l.Weight > 0) == (t.f.Mode == V2), ruleSample, "the share of CPU is %+v in mode %v", *l, t.f.Mode)
	}
}

func sampleLeaf(t *trial) {
	s := t.sampler()
	t.need("memory")
	t.apply("a/b", cgroups.Resources{})
	t.apply("a/c", cgroups.Resources{})
	t.start("a/b", 24*mib)
	leaves, err := s.ChildDirs(t.ctx, "a")
	t.Succeed(err, ruleLeaves, "ChildDirs of a")
	t.Hold(len(leaves) == 2 && slices.IsSorted(leaves), ruleLeaves, "the leaves of a are %q, want two", leaves)
	use := t.sample("a/b", "", cgroups.PartMemory).Memory.Current
	var used []uint64
	for _, leaf := range leaves {
		used = append(used, t.sample("a", leaf, cgroups.PartMemory).Memory.Current)
	}
	slices.Sort(used)
	t.Hold(used[0] < use/2 && used[1] > use/2, ruleSample, "the leaves use %d bytes, and the one with a process %d", used, use)
	for _, leaf := range []string{"..", ".", "b/d", "/b", "b\x00", "b\n"} {
		_, err := s.Sample(t.ctx, "a", leaf, cgroups.PartMemory)
		t.Hold(err != nil, ruleSample, "a leaf %q is sampled", leaf)
	}
}

func sampleAbsent(t *trial) {
	s := t.sampler()
	t.apply("a", cgroups.Resources{})
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

func reclaimBounded(t *trial) {
	r, ok := t.d.(cgroups.Reclaimer)
	if !ok {
		t.Skip("the driver is no cgroups.Reclaimer")
	}
	t.need("memory")
	t.apply("a", cgroups.Resources{SwapMax: t.noSwap()})
	t.start("a", 24*mib)
	freed, err := r.Reclaim(t.ctx, "a", 4096)
	if errors.Is(err, errors.ErrUnsupported) {
		return // which is what ruleReclaimV1 says
	}
	t.Hold(t.f.Mode == V2, ruleReclaimV1, "v1 reclaims: %v", err)
	t.Succeed(err, ruleReclaim, "Reclaim")
	t.Hold(freed <= 24*mib, ruleReclaim, "Reclaim of a page has freed %d bytes", freed)
	if t.f.Swap { // then what the process holds stays
		freed, err = r.Reclaim(t.ctx, "a", 1<<40)
		t.Succeed(err, ruleReclaim, "Reclaim of more than there is")
		t.Hold(freed < 24*mib, ruleReclaim, "Reclaim has freed %d bytes of a process without swap", freed)
	}
}

// noSwap is a limit that keeps processes in memory, where the host has it.
func (t *trial) noSwap() *int64 {
	if t.f.Swap {
		return new(int64)
	}
	return nil
}

// watcher returns the driver as a Watcher of memory events.
func (t *trial) watcher() cgroups.Watcher {
	t.Helper()
	w, ok := t.d.(cgroups.Watcher)
	if !ok {
		t.Skip("the driver is no cgroups.Watcher")
	}
	t.needV2()
	t.need("memory")
	return w
}

func watchEvents(t *trial) {
	w := t.watcher()
	t.apply("a", cgroups.Resources{MemoryMax: new(int64(16 * mib)), SwapMax: t.noSwap()})
	ctx, cancel := context.WithTimeout(t.ctx, t.f.Timeout)
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
		t.start("a", 64*mib) // is killed
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

func watchEnds(t *trial) {
	w := t.watcher()
	trigger := []cgroups.Trigger{{File: "memory.events"}}
	ignore := func(cgroups.Trigger) {}
	err := w.Watch(t.ctx, "b", trigger, ignore)
	t.Hold(errors.Is(err, fs.ErrNotExist), ruleWatchEnds, "Watch of what is absent: %v", err)
	t.Hold(w.Watch(t.ctx, "b", nil, ignore) != nil, ruleWatch, "Watch without triggers succeeds")
	t.apply("a", cgroups.Resources{})
	ctx, cancel := context.WithTimeout(t.ctx, 200*poll) // it is to begin before that
	defer cancel()
	t.Succeed(w.Watch(ctx, "a", trigger, ignore), ruleWatchEnds, "Watch whose context ends")

	done := make(chan error, 1)
	go func() { done <- w.Watch(t.ctx, "a", trigger, ignore) }()
	time.Sleep(10 * poll) // so that it waits, most likely; else the cgroup was never there
	t.remove("a")
	select {
	case err := <-done:
		t.Hold(errors.Is(err, fs.ErrNotExist), ruleWatchEnds, "Watch of what was removed: %v", err)
	case <-time.After(t.f.Timeout):
		t.Hold(false, ruleWatchEnds, "Watch goes on after its cgroup was removed")
	}
}
