// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// listRemaining returns the cgroups below the root of a driver in any hierarchy.
func listRemaining(t *testing.T, d *driver.Driver) (names []string) {
	t.Helper()
	for _, dir := range dirs(d, "") {
		require.NoError(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() && path != dir {
				names = append(names, path)
			}
			return err
		}))
	}
	return names
}

func TestIntegrationRemoveOfThousandPodsLeavesNoCgroup(t *testing.T) {
	d := openDriver(t)
	const pods = 1000
	path := func(i int) cgroups.Path {
		return cgroups.PodPath("", []cgroups.QOS{cgroups.Guaranteed, cgroups.Burstable, cgroups.BestEffort}[i%3], fmt.Sprint("uid-", i))
	}
	each := func(work func(i int) error) time.Duration {
		begin := time.Now()
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := worker; i < pods; i += 4 {
					if err := work(i); !assert.NoError(t, err) {
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(begin)
	}
	made := each(func(i int) error { return d.Apply(t.Context(), path(i), podLimits()) })
	again := each(func(i int) error { return d.Apply(t.Context(), path(i), podLimits()) })
	children, err := d.Children(t.Context(), "kubepods")
	require.NoError(t, err)
	assert.Len(t, children, pods/3+1+2, "all Guaranteed pods and the cgroups of two classes")
	removed := each(func(i int) error { return d.Remove(t.Context(), path(i)) })
	t.Logf("%d pods created in %v, applied again in %v, removed in %v", pods, made, again, removed)

	require.NoError(t, d.Remove(t.Context(), "kubepods"))
	assert.Empty(t, listRemaining(t, d))
}

func TestIntegrationRemoveRemovesDescendants(t *testing.T) {
	d := openDriver(t)
	deep := cgroups.Path("a" + strings.Repeat("/b", 40))
	require.NoError(t, d.Apply(t.Context(), deep, cgroups.Resources{}))
	for i := range 20 {
		p := pod.Join(fmt.Sprint("container", i))
		require.NoError(t, d.Apply(t.Context(), p, cgroups.Resources{}))
		start(t, d, p, "sleep")
	}
	start(t, d, deep, "sleep")
	pids, err := d.Procs(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, pids, 21)
	require.NoError(t, d.Remove(t.Context(), "a"))
	require.NoError(t, d.Remove(t.Context(), "kubepods"))
	assert.Empty(t, listRemaining(t, d))
}

// A container with its own cgroups can nest them deeper than PATH_MAX.
func TestIntegrationRemoveOfTreeDeeperThanPathMax(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	for _, dir := range dirs(d, pod) {
		at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		for range 60 {
			name := strings.Repeat("deep", 25)
			require.NoError(t, unix.Mkdirat(at, name, 0o755))
			next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(at)
			at = next
		}
		unix.Close(at)
	}
	require.NoError(t, d.Remove(t.Context(), "kubepods"))
	assert.Empty(t, listRemaining(t, d))
}

func TestIntegrationTwoDriversShareATree(t *testing.T) {
	a := openDriver(t)
	name, err := a.Name("")
	require.NoError(t, err)
	b := openAt(t, driver.Options{Root: name})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var applied, lost, removed atomic.Int64
	for _, d := range []*driver.Driver{a, b} {
		wg.Go(func() {
			for ctx.Err() == nil || applied.Load() == 0 { // at least once, even if a busy machine schedules this goroutine late
				err := d.Apply(detached(t), pod, podLimits())
				switch {
				case err == nil:
					applied.Add(1)
				case isLostRace(err):
					lost.Add(1)
				default:
					assert.NoError(t, err)
				}
			}
		})
		wg.Go(func() {
			for ctx.Err() == nil || removed.Load() == 0 {
				if !assert.NoError(t, d.Remove(detached(t), "kubepods")) {
					return
				}
				removed.Add(1)
			}
		})
	}
	wg.Wait()
	t.Logf("applied %d, lost %d, removed %d", applied.Load(), lost.Load(), removed.Load())
	assert.Positive(t, applied.Load())
	assert.Positive(t, removed.Load())
	require.NoError(t, a.Apply(t.Context(), pod, podLimits()))
	require.NoError(t, b.Remove(t.Context(), "kubepods"))
	assert.Empty(t, listRemaining(t, a))
}

// isLostRace reports whether Apply gave up because another program removed its cgroup.
func isLostRace(err error) bool {
	return strings.Contains(err.Error(), "gave up after 5 attempts")
}

func TestIntegrationApplyRecreatesRemovedDirectory(t *testing.T) {
	d := openDriver(t)
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			for _, dir := range dirs(d, pod) {
				_ = syscall.Rmdir(dir)
			}
		}
	})
	var made, lost int
	for ctx.Err() == nil || made == 0 { // at least once, even if a busy machine schedules this goroutine late
		err := d.Apply(detached(t), pod, podLimits())
		if err == nil {
			made++
			continue
		}
		lost++
		assert.True(t, isLostRace(err), err)
	}
	wg.Wait()
	t.Logf("created %d times, lost %d times", made, lost)
	assert.Positive(t, made)
	require.NoError(t, d.Apply(t.Context(), pod, podLimits()))
}

func TestIntegrationRemoveNamesSurvivingProcesses(t *testing.T) {
	r := root(t)
	d := openAt(t, driver.Options{Root: r})
	requireFeature(t, d, "v1") // on v2 frozen processes can be killed
	hasty := openAt(t, driver.Options{Root: r, Timeout: 300 * time.Millisecond})
	require.NoError(t, d.Apply(t.Context(), pod, cgroups.Resources{}))
	w := start(t, d, pod, "sleep")
	above := pod.Parent()
	require.NoError(t, d.Freeze(t.Context(), above)) // Remove thaws only the cgroups that it removes
	for op, do := range map[string]func(context.Context, cgroups.Path) error{"kill": hasty.Kill, "remove": hasty.Remove} {
		begin := time.Now()
		err := do(t.Context(), pod)
		assert.Less(t, time.Since(begin), 9*time.Second, "the timeout of the driver is in force, not the longer default")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, op+" cgroup /kubepods/burstable/pod1: ")
		assert.ErrorContains(t, err, fmt.Sprintf("%d (exe)", w.Process.Pid))
		assert.ErrorContains(t, err, "in state D")

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		assert.ErrorIs(t, do(ctx, pod), context.DeadlineExceeded)
		cancel()
	}
	require.NoError(t, d.Thaw(t.Context(), above))
	require.NoError(t, d.Remove(t.Context(), pod))
	assert.Empty(t, stuckIn(t, d, "kubepods"))
}

func stuckIn(t *testing.T, d *driver.Driver, p cgroups.Path) []int {
	t.Helper()
	pids, err := d.Procs(t.Context(), p)
	require.NoError(t, err)
	return pids
}

func TestIntegrationApplyEnablesControllers(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2", "memory")
	name, err := d.Name("sub")
	require.NoError(t, err)
	require.NoError(t, d.Apply(t.Context(), "sub", cgroups.Resources{}))
	disableControllers(t, d, "")

	_, err = driver.Open(t.Context(), driver.Options{Root: name})
	require.ErrorContains(t, err, "controller cpu is not available in the root cgroup and not in Options.OptionalControllers")
	without := openAt(t, driver.Options{Root: name, OptionalControllers: []string{"cpu", "pids"}})
	assert.Subset(t, without.Host().Missing, []string{"cpu", "memory", "pids"})
	require.NoError(t, without.Apply(t.Context(), pod, podLimits()), "limits of optional missing controllers are ignored")
	require.NoError(t, without.Remove(t.Context(), "kubepods"))

	// A cgroup with processes cannot enable controllers for its children.
	require.NoError(t, d.Apply(t.Context(), "full", cgroups.Resources{}))
	start(t, d, "full", "sleep")
	err = d.Apply(t.Context(), "full/below", cgroups.Resources{MemoryMax: new(int64(1 << 20))})
	assert.ErrorIs(t, err, syscall.EBUSY)
	assert.ErrorContains(t, err, "controller memory is not enabled")
	assert.ErrorContains(t, err, "full/cgroup.subtree_control")
	failed, _ := errors.AsType[*cgroups.Error](err)
	require.NotNil(t, failed)
	assert.Equal(t, "memory.max", failed.File)
}

// disableControllers disables all controllers for the children of a cgroup.
func disableControllers(t *testing.T, d *driver.Driver, p cgroups.Path) {
	t.Helper()
	dir := dirs(d, p)[0]
	text, err := os.ReadFile(dir + "/cgroup.subtree_control")
	require.NoError(t, err)
	for c := range strings.FieldsSeq(string(text)) {
		require.NoError(t, os.WriteFile(dir+"/cgroup.subtree_control", []byte("-"+c), 0))
	}
}

func TestIntegrationThreadedCgroupIsReadAndRemoved(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2", "memory")
	require.NoError(t, d.Apply(t.Context(), "domain/threaded", cgroups.Resources{}))
	at := dirs(d, "domain/threaded")[0]
	disableControllers(t, d, "domain")
	require.NoError(t, os.WriteFile(at+"/cgroup.type", []byte("threaded"), 0))
	err := d.Apply(t.Context(), "domain/threaded", cgroups.Resources{MemoryMax: new(int64(1 << 20))})
	assert.ErrorContains(t, err, "memory.max")
	t.Log(err)
	err = d.Apply(t.Context(), "domain/threaded/invalid", cgroups.Resources{MemoryMax: new(int64(1 << 20))})
	assert.ErrorContains(t, err, "memory.max")
	t.Log(err)

	start(t, d, "domain", "sleep")
	w := start(t, d, "domain", "sleep")
	require.NoError(t, os.WriteFile(at+"/cgroup.threads", fmt.Append(nil, w.Process.Pid), 0))
	assert.NotEmpty(t, stuckIn(t, d, "domain/threaded"))
	require.NoError(t, d.Remove(t.Context(), "domain/threaded"))
	require.NoError(t, d.Remove(t.Context(), "domain"))
	assert.Empty(t, listRemaining(t, d))
}

func TestIntegrationReadOnlyMountAllowsReadsOnly(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "v2") // v1 has too many mounts to make read-only one by one
	require.NoError(t, d.Apply(t.Context(), pod, podLimits()))
	name, err := d.Name("")
	require.NoError(t, err)
	said := strings.Split(run(t, "readonly "+name+" "+string(pod)), "\n")
	require.Len(t, said, 6, said)
	assert.Equal(t, "<nil>", said[0], "equal limits cause no write")
	assert.Contains(t, said[1], "apply cgroup /kubepods/burstable/pod1: pids.max: ")
	assert.Contains(t, said[1], "read-only file system")
	assert.Contains(t, said[2], "apply cgroup /new: make directory ")
	assert.Contains(t, said[2], "read-only file system")
	assert.Contains(t, said[3], "remove cgroup /kubepods/burstable/pod1: ")
	assert.Contains(t, said[3], "read-only file system")
	assert.Equal(t, "<nil>", said[4], "remove of an absent cgroup")
	assert.Contains(t, said[5], "freeze cgroup /kubepods/burstable/pod1: cgroup.freeze: read-only file system")
}
