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

// mutantVariable names the mutant that TestMutant gives to the suite.
const mutantVariable = "CGROUPSTEST_MUTANT"

// mutants are drivers that break one sentence each.
var mutants = map[string]struct {
	test   string // the case that finds it
	broken string // words of the sentence
	make   func(tree *cgroupstest.Tree) cgroupstest.Driver
}{
	"parents are not made": {"apply_makes", "with all of its parents", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if _, err := next.Children(ctx, p.Parent()); err != nil {
				return err
			}
			return next.Apply(ctx, p, r)
		})},
	"apply makes only once": {"apply_may_be", "called again", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if _, err := next.Children(ctx, p); err == nil {
				return &cgroups.Error{Op: "apply", Path: p, Err: fs.ErrExist}
			}
			return next.Apply(ctx, p, r)
		})},
	"what is not told is reset": {"apply_leaves", "leaves the cgroup as it is", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.CPUQuota == 0 {
				r.CPUQuota = cgroups.Unlimited
			}
			return next.Apply(ctx, p, r)
		})},
	"unlimited is not written": {"an_unlimited", "does not limit", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.PidsMax != nil && *r.PidsMax == cgroups.Unlimited {
				r.PidsMax = nil
			}
			return next.Apply(ctx, p, r)
		})},
	"a bad limit is forgotten": {"a_limit_that_the_host", "no kernel takes", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if r.Validate() != nil {
				return next.Apply(ctx, p, cgroups.Resources{})
			}
			return next.Apply(ctx, p, r)
		})},
	"unified is first": {"a_file_of_v2", "after all else", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if err := next.Apply(ctx, p, cgroups.Resources{Unified: r.Unified}); err != nil {
				return err
			}
			r.Unified = nil
			return next.Apply(ctx, p, r)
		})},
	"any path will do": {"a_path_that", "leaves the tree", applying(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			if p.Validate() != nil {
				return nil
			}
			return next.Apply(ctx, p, r)
		})},
	"errors are bare": {"what_is_absent", "what was done to which cgroup", faulty(func(f *cgroupstest.Faults) {
		f.StatsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Stats, error) {
			s, err := next.Stats(ctx, p)
			return s, errors.Unwrap(err)
		}
	})},
	"errors name no cgroup": {"a_path_that", "what was done to which cgroup", faulty(func(f *cgroupstest.Faults) {
		f.RemoveFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			err := next.Remove(ctx, p)
			if e, ok := errors.AsType[*cgroups.Error](err); ok {
				e.Path = ""
			}
			return err
		}
	})},
	"one at a time": {"writers_of_siblings", "several goroutines", func() func(tree *cgroupstest.Tree) cgroupstest.Driver {
		var busy atomic.Int32
		return applying(func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
			defer busy.Add(-1)
			if busy.Add(1) > 1 {
				return errors.New("busy")
			}
			time.Sleep(20 * time.Millisecond) // long enough to be met, on one processor too
			return next.Apply(ctx, p, r)
		})
	}()},
	"what is gone cannot be removed": {"remove_of_what", "absent cgroup is success", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if _, err := next.Children(ctx, p); err != nil {
				return err
			}
			return next.Remove(ctx, p)
		})},
	"only leaves are removed": {"remove_takes", "removes them", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if names, _ := next.Children(ctx, p); len(names) > 0 {
				return errors.New("not empty")
			}
			return next.Remove(ctx, p)
		})},
	"remove does not kill": {"remove_kills_what_runs", "kills what runs", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if pids, _ := next.Procs(ctx, p); len(pids) > 0 {
				return errors.New("busy")
			}
			return next.Remove(ctx, p)
		})},
	"the root is removed": {"the_root", "the root is refused", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			if p == "" {
				return nil
			}
			return next.Remove(ctx, p)
		})},
	"contexts are ignored": {"a_context", "a context that has ended", removing(
		func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) error {
			return next.Remove(context.WithoutCancel(ctx), p)
		})},
	"children come in no order": {"children_are", "sorted", faulty(func(f *cgroupstest.Faults) {
		f.ChildrenFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) ([]string, error) {
			names, err := next.Children(ctx, p)
			slices.Reverse(names)
			return names, err
		}
	})},
	"only its own processes are listed": {"processes_are", "everything below it", faulty(func(f *cgroupstest.Faults) {
		f.ProcsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) ([]int, error) {
			pids, err := next.Procs(ctx, p)
			if names, _ := next.Children(ctx, p); len(names) > 0 {
				pids = nil
			}
			return pids, err
		}
	})},
	"shares read back as they were written": {"cpu_shares", "kernel's own unit", func(tree *cgroupstest.Tree) cgroupstest.Driver {
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
	"limits are not read": {"a_pids_limit", "what is in force", limiting(func(r *cgroups.Resources) { r.PidsMax = nil })},
	"memory is not read":  {"memory_limits", "what is in force", limiting(func(r *cgroups.Resources) { r.MemoryLow = nil })},
	"a period is lost":    {"a_cpu_quota", "beside a quota", limiting(func(r *cgroups.Resources) { r.CPUPeriod = 100_000 })},
	"huge pages are lost": {"huge_page", "what is in force", limiting(func(r *cgroups.Resources) { maps.DeleteFunc(r.Hugetlb, always) })},
	"cpusets are lost":    {"a_cpuset", "what is in force", limiting(func(r *cgroups.Resources) { r.CpusetMems = "" })},
	"swap is lost":        {"a_swap", "what is in force", limiting(func(r *cgroups.Resources) { r.SwapMax = r.MemoryMax })},
	"empty cgroups live":  {"stats_report", "a process runs in it", counting(func(s *cgroups.Stats) { s.Events.Populated = true })},
	"kills are not told":  {"memory_over", "the OOM killer killed", counting(func(s *cgroups.Stats) { s.Memory.Events = cgroups.MemoryEvents{} })},
	"usage is not told":   {"stats_of_a_parent", "what is used", counting(func(s *cgroups.Stats) { s.Memory.Current = 0 })},
	"kill does nothing": {"kill_ends", "when nothing runs any more", func(tree *cgroupstest.Tree) cgroupstest.Driver {
		return lazy{tree}
	}},
	"freeze does nothing": {"freeze_stops", "are stopped", func(tree *cgroupstest.Tree) cgroupstest.Driver { return lazy{tree} }},
	"samples have all":    {"a_sample_has", "zero for all others", func(tree *cgroupstest.Tree) cgroupstest.Driver { return generous{tree} }},
	"leaves are ignored":  {"a_leaf_is", "below p, see ChildDirs", func(tree *cgroupstest.Tree) cgroupstest.Driver { return rooted{tree} }},
	"reclaim boasts":      {"reclaim_takes", "where there is no more", func(tree *cgroupstest.Tree) cgroupstest.Driver { return boasting{tree} }},
	"watch is deaf":       {"watch_tells", "one of the triggers fires", func(tree *cgroupstest.Tree) cgroupstest.Driver { return deaf{tree} }},
}

func always[K, V any](K, V) bool { return true }

// lazy is a driver that says it killed or froze.
type lazy struct{ *cgroupstest.Tree }

func (lazy) Kill(_ context.Context, p cgroups.Path) error   { return p.Validate() }
func (lazy) Freeze(_ context.Context, p cgroups.Path) error { return p.Validate() }

// generous is a driver that samples more than it is asked for.
type generous struct{ *cgroupstest.Tree }

func (g generous) Sample(ctx context.Context, p cgroups.Path, leaf string, _ cgroups.Parts) (cgroups.Stats, error) {
	return g.Tree.Sample(ctx, p, leaf, cgroups.PartAll)
}

// rooted is a driver that samples the cgroup that a leaf is in.
type rooted struct{ *cgroupstest.Tree }

func (r rooted) Sample(ctx context.Context, p cgroups.Path, leaf string, parts cgroups.Parts) (cgroups.Stats, error) {
	if _, err := r.Tree.Sample(ctx, p, leaf, parts); err != nil {
		return cgroups.Stats{}, err
	}
	return r.Tree.Sample(ctx, p, "", parts)
}

// boasting is a driver that says it freed what it was asked for.
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

// TestSuiteFindsFaults gives drivers with one fault each to the suite, in a process of their own since they fail, and
// looks for the sentence that they break.
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
