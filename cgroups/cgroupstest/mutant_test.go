// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

// mutantVariable is the environment variable with the name of the mutant for TestMutant.
const mutantVariable = "CGROUPSTEST_MUTANT"

// mutants are drivers that each violate one sentence of the documentation.
var mutants = map[string]struct {
	test   string // name of the case that fails
	broken string // words of the violated sentence
	make   func(tree *cgroupstest.Tree) cgroupstest.Driver
}{
	"Apply creates no parents": {"Apply_creates", "missing parents", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if _, err := next.Children(ctx, p.Parent()); err != nil {
				return err
			}
			return next.Apply(ctx, p, r)
		})},
	"Apply fails for an existing cgroup": {"Apply_can_be", "only files that differ", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if _, err := next.Children(ctx, p); err == nil {
				return &cgroups.Error{Op: "apply", Path: p, Err: fs.ErrExist}
			}
			return next.Apply(ctx, p, r)
		})},
	"Apply resets unset fields": {"Apply_keeps", "leaves the setting unchanged", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.CPUQuota == 0 {
				r.CPUQuota = cgroups.Unlimited
			}
			return next.Apply(ctx, p, r)
		})},
	"Apply skips Unlimited": {"Apply_of_Unlimited", "means no limit", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.PidsMax != nil && *r.PidsMax == cgroups.Unlimited {
				r.PidsMax = nil
			}
			return next.Apply(ctx, p, r)
		})},
	"Apply skips an invalid limit": {"Apply_rejects", "no kernel accepts", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.Validate() != nil {
				return next.Apply(ctx, p, cgroups.Resources{})
			}
			return next.Apply(ctx, p, r)
		})},
	"Apply writes Unified first": {"Apply_writes_Unified", "after all other fields", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if err := next.Apply(ctx, p, cgroups.Resources{Unified: r.Unified}); err != nil {
				return err
			}
			r.Unified = nil
			return next.Apply(ctx, p, r)
		})},
	"Apply accepts invalid paths": {"invalid_paths", "out of the tree", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if p.Validate() != nil {
				return nil
			}
			return next.Apply(ctx, p, r)
		})},
	"errors are no *cgroups.Error": {"reads_of_an_absent", "the operation, the cgroup", faulty(func(f *cgroupstest.Faults) {
		f.StatsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Stats, error) {
			s, err := next.Stats(ctx, p)
			return s, errors.Unwrap(err)
		}
	})},
	"errors have no path": {"invalid_paths", "the operation, the cgroup", faulty(func(f *cgroupstest.Faults) {
		f.RemoveFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			err := next.Remove(ctx, p)
			if e, ok := errors.AsType[*cgroups.Error](err); ok {
				e.Path = ""
			}
			return err
		}
	})},
	"concurrent calls fail": {"concurrent_Apply_of_siblings", "several goroutines", func() func(tree *cgroupstest.Tree) cgroupstest.Driver {
		var busy atomic.Int32
		return applying(func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			defer busy.Add(-1)
			if busy.Add(1) > 1 {
				return errors.New("busy")
			}
			time.Sleep(20 * time.Millisecond) // long enough that calls overlap even on one processor
			return next.Apply(ctx, p, r)
		})
	}()},
	"Remove of an absent cgroup fails": {"Remove_of_an_absent", "absent cgroup is success", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if _, err := next.Children(ctx, p); err != nil {
				return err
			}
			return next.Remove(ctx, p)
		})},
	"Remove fails with children": {"Remove_removes", "removes these cgroups", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if names, _ := next.Children(ctx, p); len(names) > 0 {
				return errors.New("not empty")
			}
			return next.Remove(ctx, p)
		})},
	"Remove does not kill": {"Remove_kills_processes", "kills the processes", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if pids, _ := next.Procs(ctx, p); len(pids) > 0 {
				return errors.New("busy")
			}
			return next.Remove(ctx, p)
		})},
	"Remove accepts the root": {"Remove_rejects", "The root cannot be removed", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if p == "" {
				return nil
			}
			return next.Remove(ctx, p)
		})},
	"Remove ignores its context": {"an_ended", "If ctx has ended", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			return next.Remove(context.WithoutCancel(ctx), p)
		})},
	"Children are unsorted": {"children_are", "sorted", faulty(func(f *cgroupstest.Faults) {
		f.ChildrenFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) ([]string, error) {
			names, err := next.Children(ctx, p)
			slices.Reverse(names)
			return names, err
		}
	})},
	"Procs omits descendants": {"Procs_are", "its descendants", faulty(func(f *cgroupstest.Faults) {
		f.ProcsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) ([]int, error) {
			pids, err := next.Procs(ctx, p)
			if names, _ := next.Children(ctx, p); len(names) > 0 {
				pids = nil
			}
			return pids, err
		}
	})},
	"CPUShares are not rounded": {"CPU_shares", "cpu.weight and back", func(tree *cgroupstest.Tree) cgroupstest.Driver {
		f := &cgroupstest.Faults{Driver: tree}
		wrote := map[cgroups.Path]uint64{}
		f.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			wrote[p] = r.CPUShares
			return next.Apply(ctx, p, r)
		}
		f.LimitsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Resources, error) {
			r, err := next.Limits(ctx, p)
			r.CPUShares = wrote[p]
			return r, err
		}
		return f
	}},
	"PidsMax is not read":         {"PID_limit", "limits in force", limiting(func(r *cgroups.Resources) { r.PidsMax = nil })},
	"MemoryLow is not read":       {"memory_limits", "limits in force", limiting(func(r *cgroups.Resources) { r.MemoryLow = nil })},
	"CPUPeriod is not read":       {"CPU_quota", "with a quota", limiting(func(r *cgroups.Resources) { r.CPUPeriod = 100_000 })},
	"Hugetlb is not read":         {"hugepage", "limits in force", limiting(func(r *cgroups.Resources) { maps.DeleteFunc(r.Hugetlb, always) })},
	"CpusetMems is not read":      {"cpuset_is", "limits in force", limiting(func(r *cgroups.Resources) { r.CpusetMems = "" })},
	"SwapMax is MemoryMax":        {"swap_limit", "limits in force", limiting(func(r *cgroups.Resources) { r.SwapMax = r.MemoryMax })},
	"empty cgroups are populated": {"Stats_report", "has a process", counting(func(s *cgroups.Stats) { s.Events.Populated = true })},
	"OOM kills are not counted":   {"memory_above", "killed by the OOM killer", counting(func(s *cgroups.Stats) { s.Memory.Events = cgroups.MemoryEvents{} })},
	"memory usage is zero":        {"Stats_of_a_parent", "the usage of p", counting(func(s *cgroups.Stats) { s.Memory.Current = 0 })},
	"Kill does nothing": {"Kill_kills", "when no process runs any more", func(tree *cgroupstest.Tree) cgroupstest.Driver {
		return lazy{tree}
	}},
	"Freeze does nothing":      {"Freeze_stops", "are stopped", func(tree *cgroupstest.Tree) cgroupstest.Driver { return lazy{tree} }},
	"Sample returns all parts": {"Sample_returns", "all other parts are zero", func(tree *cgroupstest.Tree) cgroupstest.Driver { return generous{tree} }},
	"Sample ignores the child": {"Sample_reads", "below p, see ChildDirs", func(tree *cgroupstest.Tree) cgroupstest.Driver { return rooted{tree} }},
	"Reclaim returns too much": {"Reclaim_frees", "less than bytes", func(tree *cgroupstest.Tree) cgroupstest.Driver { return boasting{tree} }},
	"Watch never calls fn":     {"Watch_reports", "one of the triggers fires", func(tree *cgroupstest.Tree) cgroupstest.Driver { return deaf{tree} }},
}

func always[K, V any](K, V) bool { return true }

// lazy is a driver whose Kill and Freeze do nothing.
type lazy struct{ *cgroupstest.Tree }

func (lazy) Kill(_ context.Context, p cgroups.Path) error   { return p.Validate() }
func (lazy) Freeze(_ context.Context, p cgroups.Path) error { return p.Validate() }

// generous is a driver that samples all parts.
type generous struct{ *cgroupstest.Tree }

func (g generous) Sample(ctx context.Context, p cgroups.Path, leaf string, _ cgroups.Parts) (cgroups.Stats, error) {
	return g.Tree.Sample(ctx, p, leaf, cgroups.PartAll)
}

// rooted is a driver that samples the parent instead of the child directory.
type rooted struct{ *cgroupstest.Tree }

func (r rooted) Sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts) (cgroups.Stats, error) {
	if _, err := r.Tree.Sample(ctx, p, leaf, parts); err != nil {
		return cgroups.Stats{}, err
	}
	return r.Tree.Sample(ctx, p, "", parts)
}

// boasting is a driver that reports the requested amount as freed.
type boasting struct{ *cgroupstest.Tree }

func (b boasting) Reclaim(ctx context.Context, p cgroups.Path, bytes uint64) (uint64, error) {
	_, err := b.Tree.Reclaim(ctx, p, bytes)
	return bytes, err
}

// deaf is a driver whose triggers never fire.
type deaf struct{ *cgroupstest.Tree }

func (deaf) Watch(ctx context.Context, _ cgroups.Path, _ []cgroups.Trigger, _ func(cgroups.Trigger)) error {
	<-ctx.Done()
	return nil
}

func faulty(set func(*cgroupstest.Faults)) func(*cgroupstest.Tree) cgroupstest.Driver {
	return func(tree *cgroupstest.Tree) cgroupstest.Driver {
		f := &cgroupstest.Faults{Driver: tree}
		set(f)
		return f
	}
}

func applying(apply func(context.Context, cgroupstest.Driver, cgroups.Path, cgroups.Resources) error) func(*cgroupstest.Tree) cgroupstest.Driver {
	return faulty(func(f *cgroupstest.Faults) { f.ApplyFunc = apply })
}

func removing(remove func(context.Context, cgroupstest.Driver, cgroups.Path) error) func(*cgroupstest.Tree) cgroupstest.Driver {
	return faulty(func(f *cgroupstest.Faults) { f.RemoveFunc = remove })
}

func limiting(change func(*cgroups.Resources)) func(*cgroupstest.Tree) cgroupstest.Driver {
	return faulty(func(f *cgroupstest.Faults) {
		f.LimitsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Resources, error) {
			r, err := next.Limits(ctx, p)
			change(&r)
			return r, err
		}
	})
}

func counting(change func(*cgroups.Stats)) func(*cgroupstest.Tree) cgroupstest.Driver {
	return faulty(func(f *cgroupstest.Faults) {
		f.StatsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Stats, error) {
			s, err := next.Stats(ctx, p)
			change(&s)
			return s, err
		}
	})
}

// TestSuiteFindsFaults runs the suite on each mutant in its own process, because the suite fails, and checks that the output
// names the violated sentence.
func TestSuiteFindsFaults(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suitetest.FindsFault(t, mutantVariable, name, m.test, m.broken)
		})
	}
}

func TestMutant(t *testing.T) {
	m, ok := mutants[os.Getenv(mutantVariable)]
	if !ok {
		t.Skip("for TestSuiteFindsFaults")
	}
	f := fixture(cgroupstest.Options{HugepageSizes: []string{"2MB"}}, m.make)
	f.Timeout = 2 * time.Second
	cgroupstest.TestDriver(t, f)
}
