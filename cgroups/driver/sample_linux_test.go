// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// The root cgroup shows the memory of the machine, on v2 too, where it has no memory.current.
func TestIntegrationSampleOfRootHasMemory(t *testing.T) {
	root(t) // skips the test without cgroups
	d := openAt(t, driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	requireFeature(t, d, "memory")
	s, err := d.Sample(t.Context(), "", "", cgroups.PartMemory|cgroups.PartMemoryLimit|cgroups.PartSwap)
	require.NoError(t, err)
	assert.Greater(t, s.Memory.Current, uint64(1<<20))
	assert.GreaterOrEqual(t, s.Memory.Current, s.Memory.WorkingSet())
	assert.Equal(t, s.Memory.Current > 0, stats(t, d, "").Memory.Current > 0)
	if d.Host().Mode == driver.V2 {
		assert.Equal(t, s.Memory.Stat.Anon+s.Memory.Stat.File, s.Memory.Current)
		assert.Nil(t, s.Memory.Max)
	}
}

// A systemd scope is a directory whose name is no path component.
func TestIntegrationSampleReadsSystemdScope(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	require.NoError(t, d.Apply(t.Context(), pod+"/sandbox", cgroups.Resources{})) // so that the pod enables its controllers
	const leaf = "cri-containerd-0a_1b@x.scope"
	for _, dir := range dirs(d, pod) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, leaf), 0o755))
	}
	leaves, err := d.ChildDirs(t.Context(), pod)
	require.NoError(t, err)
	assert.Equal(t, []string{leaf, "sandbox"}, leaves)
	s, err := d.Sample(t.Context(), pod, leaf, cgroups.PartAll)
	require.NoError(t, err)
	assert.EqualValues(t, cgroups.Unlimited, *s.Memory.Max)
	_, err = d.Sample(t.Context(), pod, "absent.scope", cgroups.PartMemory)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, `child "absent.scope"`)
}

// A cgroup that is removed during Sample is an error, not a cgroup without usage.
func TestIntegrationSampleFailsDuringRemoval(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{})) // so that the parents enable their controllers
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = d.Apply(ctx, pod, cgroups.Resources{MemoryMax: new(int64(64 << 20))})
			_ = d.Remove(ctx, pod)
		}
	}()
	found, absent := 0, 0
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		s, err := d.Sample(t.Context(), pod, "", cgroups.PartMemory|cgroups.PartMemoryLimit|cgroups.PartPids)
		if err == nil {
			found++
			if d.Host().Mode == driver.V2 { // v1 removes one hierarchy after another
				assert.Equal(t, d.Host().HasController("memory"), s.Memory.Max != nil, "a sample has either all parts or an error")
			}
			continue
		}
		absent++
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	t.Logf("%d samples, %d times the cgroup was absent", found, absent)
	cancel()
	<-done
}

// fillCaches looks up absent files and reads files of this machine in a cgroup, until the cgroup has enough reclaimable slabs and
// page cache. In qemu no file has page cache.
func fillCaches(t *testing.T, d *driver.Driver, p cgroups.Path, bytes uint64) {
	t.Helper()
	startPerl(t, d, p, `-e "/sys/kernel/absent$_" for 1..80000; my $n = 0; for my $f (glob "/usr/lib/*/lib*.so* /usr/bin/* /usr/sbin/*") {
		next if -l $f or !-f $f or !open my $h, "<", $f;
		while (my $r = read $h, my $b, 1 << 16) { $n += $r }
		last if $n > 40 << 20;
	} sleep 1000`)
	requireEventually(t, "cache", func() bool {
		s, err := d.Sample(t.Context(), p, "", cgroups.PartMemory)
		m := s.Memory.Stat
		return err == nil && m.InactiveFile+m.ActiveFile+m.SlabReclaimable >= bytes
	})
}

func TestIntegrationReclaimFreesCaches(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2", "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	fillCaches(t, d, pod, 12<<20)
	before, err := d.Sample(t.Context(), pod, "", cgroups.PartMemory)
	require.NoError(t, err)
	freed, err := d.Reclaim(t.Context(), pod, 4<<20)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("needs memory.reclaim")
	}
	require.NoError(t, err)
	// For freed slabs the kernel does not always know the cgroup.
	assert.LessOrEqual(t, freed, uint64(4<<20))
	after, err := d.Sample(t.Context(), pod, "", cgroups.PartMemory)
	require.NoError(t, err)
	const charged = 1 << 20 // the kernel charges memory per CPU in advance
	assert.GreaterOrEqual(t, before.Memory.Current+charged, after.Memory.Current+4<<20)
	t.Logf("%d MiB before, %d MiB after", before.Memory.Current>>20, after.Memory.Current>>20)

	freed, err = d.Reclaim(t.Context(), pod, 1<<40)
	require.NoError(t, err, "freeing less than requested is no error")
	assert.Less(t, freed, uint64(1<<30))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	freed, err = d.Reclaim(ctx, pod, 1<<40)
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, freed)
	_, err = d.Reclaim(t.Context(), "absent", 4096)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestIntegrationReclaimOfV1IsUnsupported(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v1")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	_, err := d.Reclaim(t.Context(), pod, 4096)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = d.Reclaim(t.Context(), "absent", 4096)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestIntegrationPressureTriggerFires(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "pressure", "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{MemoryHigh: new(int64(8 << 20)), SwapMax: new(int64(0))}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	trigger := cgroups.Trigger{File: "memory.pressure", Stall: 50 * time.Millisecond, Window: 2 * time.Second}
	fired := 0
	start(t, d, pod, "memory 64")
	begin := time.Now()
	require.NoError(t, d.Watch(ctx, pod, []cgroups.Trigger{{File: "memory.events"}, trigger}, func(which cgroups.Trigger) {
		if which == trigger {
			fired++
			cancel()
		}
	}))
	assert.Equal(t, 1, fired)
	t.Logf("fired %v after the start", time.Since(begin))
}

// v1 has the pressure of the machine only.
func TestIntegrationWatchOnV1SupportsMachinePressureOnly(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v1")
	trigger := []cgroups.Trigger{{File: "memory.pressure", Stall: 2 * time.Second, Window: 2 * time.Second}} // allowed without CAP_SYS_RESOURCE
	err := d.Watch(t.Context(), "", trigger, func(cgroups.Trigger) {})
	assert.ErrorIs(t, err, errors.ErrUnsupported, "the root of the driver is not the root cgroup of the machine")
	top := openAt(t, driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	if !top.Host().Pressure {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	assert.NoError(t, top.Watch(ctx, "", trigger, func(cgroups.Trigger) {}))
	assert.ErrorIs(t, top.Watch(t.Context(), "", []cgroups.Trigger{{File: "memory.events"}}, func(cgroups.Trigger) {}), errors.ErrUnsupported)
}

func TestIntegrationWatchContinuesAfterClose(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2", "memory")
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- d.Watch(ctx, pod, []cgroups.Trigger{{File: "memory.events"}}, func(cgroups.Trigger) {})
	}()
	time.Sleep(20 * time.Millisecond) // Watch has most likely started; otherwise it fails because the driver is closed
	require.NoError(t, d.Close(), "Close does not wait for a Watch")
	cancel()
	if err := <-ended; err != nil {
		assert.ErrorIs(t, err, fs.ErrClosed)
	}
	assert.ErrorIs(t, d.Watch(t.Context(), pod, []cgroups.Trigger{{File: "memory.events"}}, nil), fs.ErrClosed)
}

// sampledParts are the parts of a container that a stats summary reads.
const sampledParts = cgroups.PartCPU | cgroups.PartMemory | cgroups.PartMemoryLimit | cgroups.PartSwap | cgroups.PartPids

// files returns the files that a sample opens, by controller. Controllers of v1 are in the order of the hierarchies.
func files(d *driver.Driver) map[string][]string {
	if d.Host().Mode == driver.V2 {
		return map[string][]string{"memory": {"cpu.stat", "memory.current", "memory.stat", "memory.max", "memory.swap.max", "memory.swap.current", "pids.current"}}
	}
	return map[string][]string{
		"cpu": {"cpu.stat"}, "cpuacct": {"cpuacct.usage", "cpuacct.stat"}, "pids": {"pids.current"},
		"memory": {"memory.usage_in_bytes", "memory.stat", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"},
	}
}

// Sampling 500 cgroups takes at most 1.3 times as long as opening, reading and closing their files. The variants run in turn
// on a few cgroups, and the fastest of several rounds counts.
func TestIntegrationSampleCostsAtMost130PercentOfReads(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	n := 500
	if os.Getenv("IN_TEST_VM") != "" { // creating them takes half a minute there
		n = 100
	}
	var paths []cgroups.Path
	var names []string
	for i := range n {
		p := cgroups.Path(fmt.Sprintf("kubepods/burstable/pod%08d-ab12/0123456789abcdef0123456789abcdef0123456789abcdef0123456789%06d", i/2, i))
		require.NoError(t, d.Apply(t.Context(), p, cgroups.Resources{}))
		paths = append(paths, p)
		for controller, files := range files(d) {
			for _, file := range files {
				if dir := d.Host().Dirs[controller]; dir != "" {
					names = append(names, filepath.Join(dir, string(p), file))
				}
			}
		}
	}
	const chunk = 10
	bare, ours := make([]time.Duration, n/chunk), make([]time.Duration, n/chunk)
	fastest := func(d *time.Duration, begin time.Time) {
		if took := time.Since(begin); *d == 0 || took < *d {
			*d = took
		}
	}
	sum := func(all []time.Duration) (total time.Duration) {
		for _, d := range all {
			total += d
		}
		return total
	}
	buf := make([]byte, 64<<10)
	ratio := 2.
	for round := 0; round < 5 || round < 30 && ratio >= 1.3; round++ {
		for i := range n / chunk {
			begin := time.Now()
			for _, name := range names[i*len(names)/(n/chunk) : (i+1)*len(names)/(n/chunk)] {
				open1(t, name, buf)
			}
			fastest(&bare[i], begin)
			begin = time.Now()
			for _, p := range paths[i*chunk : (i+1)*chunk] {
				_, err := d.Sample(t.Context(), p, "", sampledParts)
				require.NoError(t, err)
			}
			fastest(&ours[i], begin)
		}
		ratio = sum(ours).Seconds() / sum(bare).Seconds()
	}
	t.Logf("%d files: bare %v, sampled %v, ratio %.2f", len(names), sum(bare), sum(ours), ratio)
	assert.Less(t, ratio, 1.3)
}

// open1 opens, reads and closes one file, if it exists.
func open1(t *testing.T, name string, buf []byte) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	for n := 1; n > 0 && err == nil; {
		n, err = unix.Read(fd, buf)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		require.NoError(t, err)
	}
	unix.Close(fd)
}

func BenchmarkIntegrationSample(b *testing.B) {
	d := openAt(b, driver.Options{Root: root(b)})
	require.NoError(b, d.Apply(b.Context(), pod, podLimits()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Sample(b.Context(), pod, "", sampledParts); err != nil {
			b.Fatal(err)
		}
	}
}

// The kernel counts no tasks in the root cgroup. On v2 its processes are counted, as in runc.
func TestIntegrationV2RootCountsProcesses(t *testing.T) {
	root(t) // skips the test without cgroups
	d := openAt(t, driver.Options{OptionalControllers: []string{"cpu", "pids"}})
	requireFeature(t, d, "v2", "pids")
	s, err := d.Sample(t.Context(), "", "", cgroups.PartPids|cgroups.PartProcs)
	require.NoError(t, err)
	assert.NotEmpty(t, s.Pids.Procs)
	assert.EqualValues(t, len(s.Pids.Procs), s.Pids.Current)
}
