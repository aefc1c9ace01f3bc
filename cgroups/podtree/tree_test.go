// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// start sets up a tree and runs it until the test ends.
func start(t *testing.T, w podtree.Cgroups, p podtree.Pods, o podtree.Options) *podtree.Tree {
	t.Helper()
	tree, err := podtree.New(w, p, o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tree.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	return tree
}

func TestMemoryLimitFollowsGrowthDuringWrite(t *testing.T) {
	fake := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1})
	require.NoError(t, fake.Apply(t.Context(), "kubepods/besteffort/podx", cgroups.Resources{}))
	pid, err := fake.Start(cgroupstest.Proc{Cgroup: "kubepods/besteffort/podx", Memory: 1 << 30})
	require.NoError(t, err)
	faults := &cgroupstest.Faults{Driver: fake}
	grown := false
	faults.ApplyFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path, r cgroups.Resources) error {
		if p == "kubepods/besteffort" && !grown {
			grown = true
			require.NoError(t, fake.SetMemory(pid, 6<<30))
		}
		return next.Apply(ctx, p, r)
	}
	o := options()
	o.QOSReserved, o.Node.CgroupV1 = new(int64(100)), true
	guaranteed := newPod("g", list("cpu", "1", "memory", "5Gi"), list("cpu", "1", "memory", "5Gi"))
	tree, err := podtree.New(faults, pods(guaranteed), o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	r, err := fake.Limits(t.Context(), "kubepods/besteffort")
	require.NoError(t, err)
	require.EqualValues(t, 6<<30, *r.MemoryMax) // BestEffort pods would get 5Gi
}

func TestCgroupWrittenHookCalledForEachWrite(t *testing.T) {
	var wrote []string
	o := options()
	o.Hooks.CgroupWritten = func(w podtree.WriterCall) { wrote = append(wrote, fmt.Sprint(w.Op, " ", w.Path, " ", w.Err)) }
	pod := newPod("a", nil, nil)
	tree, err := podtree.New(cgroupstest.New(cgroupstest.Options{}), pods(pod), o)
	require.NoError(t, err)
	require.NoError(t, tree.Setup(t.Context()))
	require.NoError(t, tree.Ensure(t.Context(), pod))
	require.NoError(t, tree.Setup(t.Context()))
	require.NoError(t, tree.Remove(t.Context(), "a"))
	require.Equal(t, []string{
		"create kubepods <nil>", "create kubepods/burstable <nil>", "create kubepods/besteffort <nil>",
		"create kubepods/besteffort/poda <nil>",
		"update kubepods <nil>", "update kubepods/burstable <nil>", "update kubepods/besteffort <nil>",
		"destroy kubepods/besteffort/poda <nil>",
	}, wrote)
}

// A pod that is added during the listing is either not listed or already reported by Pods, so its cgroup is never an orphan.
func TestPodsAreReadAfterCgroupsAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		p := pods()
		faults := &cgroupstest.Faults{Driver: fake}
		var removed atomic.Bool
		faults.ChildrenFunc = func(ctx context.Context, next cgroupstest.Driver, path cgroups.Path) ([]string, error) {
			if path == "kubepods/burstable" {
				p.change(func() { p.active["a"] = newPod("a", list("cpu", "1"), nil) })
				require.NoError(t, fake.Apply(ctx, "kubepods/burstable/poda", cgroups.Resources{}))
			}
			return next.Children(ctx, path)
		}
		faults.RemoveFunc = func(context.Context, cgroupstest.Driver, cgroups.Path) error {
			removed.Store(true)
			return nil
		}
		start(t, faults, p, options())
		time.Sleep(time.Minute)
		require.False(t, removed.Load())
	})
}

// lateRunner is a pod that is added back between the plan and the removal of its cgroup.
type lateRunner struct{ asked atomic.Int32 }

func (*lateRunner) Active() ([]*corev1.Pod, bool) { return nil, true }
func (l *lateRunner) MayRun(string) bool          { return l.asked.Add(1) > 1 }

func TestOrphanOfReturnedPodIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		require.NoError(t, fake.Apply(t.Context(), "kubepods/poda", cgroups.Resources{}))
		p := &lateRunner{}
		tree := start(t, fake, p, options())
		synctest.Wait()
		require.EqualValues(t, 2, p.asked.Load())
		_, err := fake.Children(t.Context(), "kubepods/poda")
		require.NoError(t, err)
		require.Empty(t, tree.Status().Orphans)
	})
}

func TestOrphanWithNewVolumesIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		require.NoError(t, fake.Apply(t.Context(), "kubepods/poda", cgroups.Resources{}))
		o := options()
		var asked atomic.Int32
		o.HasVolumes = func(string) bool { return asked.Add(1) > 1 }
		start(t, fake, pods(), o)
		synctest.Wait()
		require.EqualValues(t, 2, asked.Load())
		_, err := fake.Children(t.Context(), "kubepods/poda")
		require.NoError(t, err)
	})
}

func TestStatsReadOnlyToLowerMemoryLimit(t *testing.T) {
	fake := cgroupstest.New(cgroupstest.Options{})
	faults := &cgroupstest.Faults{Driver: fake}
	looked := 0
	faults.StatsFunc = func(ctx context.Context, next cgroupstest.Driver, p cgroups.Path) (cgroups.Stats, error) {
		looked++
		return next.Stats(ctx, p)
	}
	for _, step := range []struct {
		memory string
		want   int
	}{{"8Gi", 0}, {"8Gi", 0}, {"16Gi", 0}, {"4Gi", 1}} {
		tree, err := podtree.New(faults, pods(), podtree.Options{Capacity: list("cpu", "4", "memory", step.memory)})
		require.NoError(t, err)
		looked = 0
		require.NoError(t, tree.Setup(t.Context()))
		require.Equal(t, step.want, looked, step.memory)
	}
}

func TestRunLimitsParallelRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{})
		for i := range 100 {
			require.NoError(t, fake.Apply(t.Context(), cgroups.Path(fmt.Sprintf("kubepods/pod%d", i)), cgroups.Resources{}))
		}
		faults := &cgroupstest.Faults{Driver: fake}
		var now, most atomic.Int32
		faults.RemoveFunc = func(ctx context.Context, next cgroupstest.Driver, path cgroups.Path) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return next.Remove(ctx, path)
		}
		o := options()
		o.Parallel = 10
		start(t, faults, pods(), o)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 10, most.Load())
		left, err := fake.Children(t.Context(), "kubepods")
		require.NoError(t, err)
		require.Equal(t, []string{"besteffort", "burstable"}, left)
	})
}

// Pods are added and removed at random, writes fail and hang. Afterwards exactly the remaining pods have cgroups, and the shares
// are the sums of their requests.
func TestRunConvergesAfterRandomFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := cgroupstest.New(cgroupstest.Options{Mode: cgroupstest.V1})
		p := pods()
		var trouble atomic.Bool
		trouble.Store(true)
		faults := &cgroupstest.Faults{Driver: fake}
		faults.Around = func(ctx context.Context, _ string, path cgroups.Path, call func() error) error {
			switch n := rand.IntN(20); {
			case trouble.Load() && path != "" && n == 0:
				return cgroupstest.Hang(ctx)
			case trouble.Load() && n == 1:
				return errors.New("trouble")
			}
			return call()
		}
		trouble.Store(false)
		tree := start(t, faults, p, options())
		trouble.Store(true)
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { startAndRemove(t, tree, p, fmt.Sprintf("%d", i)) })
		}
		wg.Wait()
		trouble.Store(false)
		time.Sleep(10 * time.Minute)
		var want []string
		active, _ := p.Active()
		for _, pod := range active {
			require.NoError(t, tree.Ensure(t.Context(), pod))
			want = append(want, "pod"+string(pod.UID))
		}
		synctest.Wait()
		got, err := fake.Children(t.Context(), "kubepods/burstable")
		require.NoError(t, err)
		slices.Sort(want)
		require.Equal(t, want, got)
		r, err := fake.Limits(t.Context(), "kubepods/burstable")
		require.NoError(t, err)
		require.Equal(t, cgroups.CPUShares(int64(100*len(want))), r.CPUShares)
		require.Empty(t, tree.Status().Orphans)
	})
}

// startAndRemove starts and removes a pod a few times, and leaves it running or removed.
func startAndRemove(t *testing.T, tree *podtree.Tree, p *podSet, name string) {
	pod := newPod(name, list("cpu", "100m"), nil)
	for range 1 + rand.IntN(4) {
		p.change(func() { p.active[name] = pod })
		if err := tree.Ensure(t.Context(), pod); err == nil && rand.IntN(4) == 0 {
			return
		}
		time.Sleep(time.Duration(rand.IntN(5000)) * time.Millisecond)
		p.change(func() {
			delete(p.active, name)
			p.others[name] = true
		})
		_ = tree.Remove(t.Context(), name) // failed removals are repeated by the orphan removal
		p.change(func() { delete(p.others, name) })
		tree.Changed()
	}
}

// TestPlanSaturatesSums compares the sums of a plan with big numbers.
func TestPlanSaturatesSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	quantity := func() string { return fmt.Sprintf("%d", 1+random.Uint64()>>(2+random.IntN(60))) }
	for range 5000 {
		o := options()
		o.QOSReserved = new(random.Int64N(101))
		capacity := fmt.Sprint(1 + random.Int64())
		o.Capacity[corev1.ResourceMemory] = resource.MustParse(capacity)
		var list []*corev1.Pod
		shares, guaranteed, burstable := new(big.Int), new(big.Int), new(big.Int)
		for range random.IntN(5) {
			cpu, memory := quantity(), quantity()
			requests := corev1.ResourceList{"cpu": resource.MustParse(cpu + "m"), "memory": resource.MustParse(memory)}
			if random.IntN(2) == 0 {
				list = append(list, newPod("g", requests, requests))
				guaranteed.Add(guaranteed, number(memory))
			} else {
				list = append(list, newPod("b", requests, nil))
				shares.Add(shares, number(cpu))
				burstable.Add(burstable, number(memory))
			}
		}
		updates := podtree.Plan(o, list, true)
		left := number(capacity)
		for i, kept := range []*big.Int{guaranteed, burstable} {
			kept.Mul(kept, big.NewInt(*o.QOSReserved)).Div(kept, big.NewInt(100))
			if left.Sub(left, kept).Sign() < 0 {
				left.SetInt64(0)
			}
			require.Equal(t, left.String(), fmt.Sprint(*updates[i+1].Resources.MemoryMax), "%d%%", *o.QOSReserved)
		}
		shares.Mul(shares, big.NewInt(1024)).Div(shares, big.NewInt(1000))
		want := uint64(cgroups.MaxShares)
		if shares.IsUint64() {
			want = min(max(shares.Uint64(), cgroups.MinShares), cgroups.MaxShares)
		}
		require.Equal(t, want, updates[1].Resources.CPUShares)
	}
}

func number(s string) *big.Int {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		panic(s)
	}
	return n
}

// FuzzPlanOrphans checks that pods that may run, wait or are busy are skipped, and that each other pod is planned once.
func FuzzPlanOrphans(f *testing.F) {
	f.Add(uint64(1), uint8(20), true)
	f.Fuzz(func(t *testing.T, seed uint64, n uint8, complete bool) {
		random := rand.New(rand.NewPCG(seed, 0))
		now := time.Unix(1000, 0)
		s := podtree.OrphanState{Complete: complete, Now: now, Attempts: map[cgroups.Path]podtree.RemovalAttempts{}}
		mayRun, volumes := map[string]bool{}, map[string]bool{}
		for i := range n {
			uid := fmt.Sprint(i)
			found := podtree.PodCgroup{UID: uid, Path: cgroups.PodPath("", cgroups.Burstable, uid)}
			s.Found = append(s.Found, found)
			mayRun[uid], volumes[uid] = random.IntN(3) == 0, random.IntN(3) == 0
			s.Attempts[found.Path] = podtree.RemovalAttempts{
				Busy: random.IntN(5) == 0, Failures: random.IntN(3), Retry: now.Add(time.Duration(random.IntN(5)-2) * time.Second),
			}
		}
		s.MayRun = func(uid string) bool { return mayRun[uid] }
		s.HasVolumes = func(uid string) bool { return volumes[uid] }
		plan := podtree.PlanOrphans(s)
		seen := map[cgroups.Path]string{}
		for what, list := range map[string][]podtree.PodCgroup{"remove": plan.Remove, "shrink": plan.Shrink, "wait": plan.Waiting} {
			for _, f := range list {
				require.Empty(t, seen[f.Path], "twice")
				seen[f.Path] = what
			}
		}
		for _, f := range s.Found {
			attempt := s.Attempts[f.Path]
			want := "remove"
			switch {
			case mayRun[f.UID] || !complete:
				want = ""
			case attempt.Busy || attempt.Retry.After(now):
				want = "wait"
			case volumes[f.UID]:
				want = "shrink"
			}
			require.Equal(t, want, seen[f.Path])
		}
		require.True(t, slices.IsSortedFunc(plan.Remove, func(a, b podtree.PodCgroup) int {
			return s.Attempts[a.Path].Failures - s.Attempts[b.Path].Failures
		}))
		require.False(t, !plan.Wake.IsZero() && !plan.Wake.After(now))
	})
}
