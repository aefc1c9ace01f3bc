// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/qos"
)

// host is the driver of this machine, with a root cgroup for the test.
type host struct {
	*driver.Driver
	root cgroups.Path
}

// openHost creates the cgroup of the test, which is removed when the test ends.
func openHost(t *testing.T) host {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to create cgroups")
	}
	d, err := driver.Open(t.Context(), driver.Options{})
	if err != nil {
		t.Skipf("this host has no usable cgroups: %v", err)
	}
	h := host{d, cgroups.Path(fmt.Sprintf("nodeagent-podtree-%d", os.Getpid()))}
	require.NoError(t, d.Apply(t.Context(), h.root, cgroups.Resources{}))
	t.Cleanup(func() {
		assert.NoError(t, d.Remove(context.Background(), h.root))
		assert.NoError(t, d.Close())
	})
	return h
}

func (h host) options(t *testing.T) podtree.Options {
	t.Helper()
	o := podtree.Options{Root: h.root, Capacity: list("cpu", "2", "memory", "1Gi"), OrphanPeriod: 100 * time.Millisecond}
	o.Reserved.System = list("cpu", "500m", "memory", "256Mi", "pid", "100")
	o.Node.HugepageSizes = h.Host().HugepageSizes
	o.Node.CgroupV1 = h.Host().Mode != driver.V2
	o.Node.PodPidsLimit = 64
	o.Node.Reservation = qos.TieredReservation
	o.Enforce, o.SystemCgroup = []podtree.Enforcement{podtree.EnforcePods, podtree.EnforceSystem}, h.root.Join("system")
	require.NoError(t, h.Apply(t.Context(), o.SystemCgroup, cgroups.Resources{}))
	var err error
	o.MaxPIDs, err = podtree.MaxPIDs(os.DirFS("/proc"))
	require.NoError(t, err)
	return o
}

// startProcess starts a process with 16Mi of memory in a cgroup and waits until its memory is charged.
func (h host) startProcess(t *testing.T, p cgroups.Path) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read x; (head -c 16777216 /dev/zero; exec sleep 1000) | tail -n 1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for _, dir := range h.Host().Dirs {
		procs := filepath.Join(dir, string(p), "cgroup.procs")
		require.NoError(t, os.WriteFile(procs, []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	_, err = io.WriteString(stdin, "\n")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		s, err := h.Stats(t.Context(), p)
		return err == nil && s.Memory.Current >= 16<<20
	}, time.Minute, 20*time.Millisecond)
	return cmd
}

// limits returns the limits in force. Shares have the precision of the kernel.
func (h host) limits(t *testing.T, p cgroups.Path) cgroups.Resources {
	t.Helper()
	r, err := h.Limits(t.Context(), p)
	require.NoError(t, err)
	return r
}

func (h host) equalShares(t *testing.T, want uint64, p cgroups.Path) {
	t.Helper()
	got := h.limits(t, p).CPUShares
	if h.Host().Mode == driver.V2 {
		want = cgroups.SharesFromWeight(cgroups.WeightFromShares(want, 0), 0)
	}
	assert.Equal(t, want, got, p)
}

func TestIntegrationTreeLifecycle(t *testing.T) {
	h := openHost(t)
	guaranteed := newPod("g", list("cpu", "100m", "memory", "128Mi"), list("cpu", "100m", "memory", "128Mi"))
	burstable := newPod("b", list("cpu", "250m", "memory", "64Mi"), list("cpu", "500m", "memory", "256Mi"))
	bestEffort := newPod("e", nil, nil)
	p := pods(guaranteed, burstable, bestEffort)
	o := h.options(t)
	tree := start(t, h, p, o)
	for _, pod := range []*corev1.Pod{guaranteed, burstable, bestEffort} {
		require.NoError(t, tree.Ensure(t.Context(), pod))
		assert.EqualValues(t, cgroups.Unlimited, h.limits(t, tree.Path(pod)).CPUQuota, "no CPU quota before Limit, so that the start is not throttled")
		require.NoError(t, tree.Limit(t.Context(), pod))
	}

	kubepods := h.root.Join("kubepods")
	h.equalShares(t, 1536, kubepods)
	assert.EqualValues(t, 768<<20, *h.limits(t, kubepods).MemoryMax)
	assert.Equal(t, o.MaxPIDs-100, *h.limits(t, kubepods).PidsMax)
	h.equalShares(t, 256, kubepods.Join("burstable"))
	h.equalShares(t, 2, kubepods.Join("besteffort"))
	for _, tc := range []struct {
		pod    *corev1.Pod
		shares uint64
		quota  int64
		memory int64
	}{
		{guaranteed, 102, 10000, 128 << 20},
		{burstable, 256, 50000, 256 << 20},
		{bestEffort, 2, cgroups.Unlimited, cgroups.Unlimited},
	} {
		path := tree.Path(tc.pod)
		r := h.limits(t, path)
		h.equalShares(t, tc.shares, path)
		assert.Equal(t, tc.quota, r.CPUQuota, path)
		assert.Equal(t, tc.memory, *r.MemoryMax, path)
		assert.EqualValues(t, 64, *r.PidsMax, path)
	}

	system := h.limits(t, o.SystemCgroup)
	h.equalShares(t, 512, o.SystemCgroup)
	assert.EqualValues(t, 256<<20, *system.MemoryMax)
	assert.EqualValues(t, 100, *system.PidsMax)
	if h.Host().Mode == driver.V2 {
		assert.EqualValues(t, 256<<20, *system.MemoryMin)
		assert.EqualValues(t, 192<<20, *h.limits(t, kubepods).MemoryMin)
		assert.EqualValues(t, 64<<20, *h.limits(t, kubepods).MemoryLow)
		assert.EqualValues(t, 64<<20, *h.limits(t, kubepods.Join("burstable")).MemoryLow)
		assert.EqualValues(t, 128<<20, *h.limits(t, tree.Path(guaranteed)).MemoryMin)
	}

	t.Run("resize", func(t *testing.T) { h.resize(t, tree, burstable) })
	t.Run("limit below usage", func(t *testing.T) { h.checkOveruse(t, tree, p) })
	t.Run("remove", func(t *testing.T) {
		cmd := h.startProcess(t, tree.Path(burstable))
		require.NoError(t, tree.Remove(t.Context(), "b"))
		require.Error(t, cmd.Wait()) // the process was killed
		_, err := h.Children(t.Context(), tree.Path(burstable))
		require.ErrorIs(t, err, os.ErrNotExist)
	})
	t.Run("orphan", func(t *testing.T) {
		p.change(func() { p.others["orphan"] = true }) // the pod may run
		orphan := kubepods.Join("besteffort", "podorphan")
		limit := cgroups.Resources{MemoryMax: new(int64(128 << 20))}
		require.NoError(t, h.Apply(t.Context(), orphan.Join("container"), limit))
		cmd := h.startProcess(t, orphan.Join("container"))
		p.change(func() { delete(p.others, "orphan") })
		require.Error(t, cmd.Wait())
		require.Eventually(t, func() bool {
			_, err := h.Children(t.Context(), orphan)
			return err != nil
		}, time.Minute, 10*time.Millisecond)
	})
}

func (h host) resize(t *testing.T, tree *podtree.Tree, from *corev1.Pod) {
	to := newPod("b", list("cpu", "500m", "memory", "128Mi"), list("cpu", "1", "memory", "512Mi"))
	rt := &notedRuntime{}
	require.NoError(t, tree.Resize(t.Context(), to, nil, rt))
	path := tree.Path(to)
	h.equalShares(t, 512, path)
	assert.EqualValues(t, 100000, h.limits(t, path).CPUQuota)
	assert.EqualValues(t, 512<<20, *h.limits(t, path).MemoryMax)

	h.startProcess(t, path)
	tiny := newPod("b", list("cpu", "250m", "memory", "8Mi"), list("cpu", "500m", "memory", "8Mi"))
	require.ErrorContains(t, tree.Resize(t.Context(), tiny, nil, rt), "attempting to set pod memory limit (8388608) below current usage (")
	require.NoError(t, tree.Resize(t.Context(), from, nil, rt))
	assert.EqualValues(t, 256<<20, *h.limits(t, path).MemoryMax)
	require.NoError(t, tree.Ensure(t.Context(), to)) // Ensure does not change a running pod
	assert.EqualValues(t, 256<<20, *h.limits(t, path).MemoryMax)
}

// checkOveruse sets up the node with less memory than its pods use.
func (h host) checkOveruse(t *testing.T, tree *podtree.Tree, p *podSet) {
	kubepods := h.root.Join("kubepods")
	before := *h.limits(t, kubepods).MemoryMax
	cmd := h.startProcess(t, tree.Path(p.active["e"]))
	o := h.options(t)
	o.Capacity, o.Reserved = list("cpu", "2", "memory", "8Mi"), podtree.Reserved{}
	o.Enforce = nil
	less, err := podtree.New(h, p, o)
	require.NoError(t, err)
	require.NoError(t, less.Setup(t.Context()))
	require.ErrorAs(t, less.Status().Cgroups[0].Err, new(*podtree.OveruseError))
	assert.Equal(t, before, *h.limits(t, kubepods).MemoryMax)
	require.NoError(t, cmd.Process.Signal(syscall.Signal(0))) // the process still runs
}

func TestIntegrationManyPods(t *testing.T) {
	h := openHost(t)
	const n = 300
	p := pods()
	for i := range n {
		p.active[fmt.Sprint(i)] = newPod(fmt.Sprint(i), list("cpu", "10m", "memory", "1Mi"), list("memory", "64Mi"))
	}
	tree := start(t, h, p, h.options(t))
	began := time.Now()
	active, _ := p.Active()
	for _, pod := range active {
		require.NoError(t, tree.Ensure(t.Context(), pod))
	}
	made := time.Since(began)
	burstable := h.root.Join("kubepods", "burstable")
	names, err := h.Children(t.Context(), burstable)
	require.NoError(t, err)
	require.Len(t, names, n)
	h.equalShares(t, cgroups.CPUShares(10*n), burstable)
	began = time.Now()
	for _, pod := range active {
		require.NoError(t, tree.Remove(t.Context(), string(pod.UID)))
	}
	names, err = h.Children(t.Context(), burstable)
	require.NoError(t, err)
	require.Empty(t, names)
	t.Logf("%d pods: created in %v, removed in %v", n, made, time.Since(began))
}
