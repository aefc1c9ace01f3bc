// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/stats"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// testNode is a node in memory.
type testNode struct {
	t    *testing.T
	tree *cgroupstest.Tree
	rt   *critest.Runtime
	via  *critest.Interceptor
	proc fstest.MapFS
	opts stats.Options

	mu    sync.Mutex
	disks map[string]stats.Filesystem
	hang  map[string]chan struct{} // statfs of these paths waits
	asked int                      // number of statfs calls
}

// listerWithStats is a runtime with all optional interfaces that a collector uses.
type listerWithStats struct {
	cri.Lister
	cri.StatsLister
	stats.ImageUser
}

func newTestNode(t *testing.T) *testNode {
	h := &testNode{
		t: t, tree: cgroupstest.New(cgroupstest.Options{}),
		disks: map[string]stats.Filesystem{
			"/var/lib/kubelet": {CapacityBytes: 100 * gib, AvailableBytes: 40 * gib, FreeBytes: 50 * gib, Inodes: 1000, InodesFree: 400, Device: 1},
			"/critest":         {CapacityBytes: 10 * gib, AvailableBytes: 3 * gib, FreeBytes: 4 * gib, Inodes: 500, InodesFree: 100, Device: 2},
		},
		hang: map[string]chan struct{}{},
		proc: fstest.MapFS{},
	}
	for name, text := range map[string]string{
		"meminfo":                "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\nHugetlb: 1048576 kB\n",
		"loadavg":                "1.36 3.49 4.53 2/518 3715089\n",
		"sys/kernel/pid_max":     "32768\n",
		"sys/kernel/threads-max": "20000\n",
		"stat":                   "cpu 1\nbtime 1700000000\n",
		"1/net/dev":              netDev("eth0", 100) + "  lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n",
	} {
		h.proc[name] = &fstest.MapFile{Data: []byte(text)}
	}
	_, err := h.tree.Start(cgroupstest.Proc{Name: "init"}) // a process in the network namespace of the node
	require.NoError(t, err)
	h.rt = critest.New(critest.Options{Usage: func(c cri.Container) cri.ContainerStats {
		return cri.ContainerStats{WritableLayer: &cri.FilesystemUsage{Time: time.Unix(1e9, 0), UsedBytes: new(uint64(7 * mib)), InodesUsed: new(uint64(70))}}
	}})
	h.via = &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: h.rt}}
	h.opts = stats.Options{
		NodeName: "node-1", Proc: h.proc, Statfs: h.statfs, Timeout: time.Minute, SignalTimeout: time.Minute,
		LogRoot: t.TempDir(),
	}
	return h
}

func netDev(name string, bytes int) string {
	return "Inter-|   Receive\n face |bytes\n" + fmt.Sprintf("  %s: %d 2 3 4 0 0 0 0 %d 6 7 8 0 0 0 0\n", name, bytes, 2*bytes)
}

func (h *testNode) statfs(path string) (stats.Filesystem, error) {
	h.mu.Lock()
	wait, f := h.hang[path], h.disks[path]
	h.asked++
	h.mu.Unlock()
	if wait != nil {
		<-wait
	}
	if f == (stats.Filesystem{}) {
		return f, &fs.PathError{Op: "statfs", Path: path, Err: fs.ErrNotExist}
	}
	return f, nil
}

// collector returns a collector of the node.
func (h *testNode) collector() *stats.Collector {
	h.t.Helper()
	c, err := stats.New(h.tree, listerWithStats{h.via, h.via, h.via}, h.opts)
	require.NoError(h.t, err)
	return c
}

// pod starts a pod with one container, which has a cgroup and uses memory bytes. It returns the cgroup of the pod.
func (h *testNode) pod(name string, class cgroups.QOS, memory int64) cgroups.Path {
	h.t.Helper()
	ctx := h.t.Context()
	config := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "uid-" + name, Name: name, Namespace: "ns"}}
	sandbox, err := h.rt.RunSandbox(ctx, config)
	require.NoError(h.t, err)
	id, err := h.rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{Name: "main", Image: cri.ImageSpec{Image: "i"}}, config)
	require.NoError(h.t, err)
	require.NoError(h.t, h.rt.StartContainer(ctx, id))
	path := cgroups.PodPath("", class, "uid-"+name)
	require.NoError(h.t, h.tree.Apply(ctx, path, cgroups.Resources{MemoryMax: new(int64(gib))}))
	require.NoError(h.t, h.tree.Apply(ctx, path.Join(sandbox), cgroups.Resources{}))
	leaf := path.Join("cri-containerd-" + id + ".scope")
	require.NoError(h.t, h.tree.Apply(ctx, leaf, cgroups.Resources{SwapMax: new(int64(mib))}))
	pause, err := h.tree.Start(cgroupstest.Proc{Cgroup: path.Join(sandbox)})
	require.NoError(h.t, err)
	h.proc[fmt.Sprintf("%d/net/dev", pause)] = &fstest.MapFile{Data: []byte(netDev("eth0", 1000))}
	_, err = h.tree.Start(cgroupstest.Proc{Cgroup: leaf, Memory: memory})
	require.NoError(h.t, err)
	return path
}

func TestSummaryHasNodeAndPods(t *testing.T) {
	h := newTestNode(t)
	h.opts.System = []stats.SystemContainer{{Name: statsapi.SystemContainerRuntime, Path: "system", Leaf: "containerd.service"}, {Name: "absent", Path: "x"}}
	require.NoError(t, h.tree.Apply(t.Context(), "system/containerd.service", cgroups.Resources{}))
	path := h.pod("web", cgroups.Burstable, 64*mib)
	require.NoError(t, h.tree.SetCache(path, 10*mib))
	require.NoError(t, h.tree.AddCPU(path, cgroups.CPUStat{Usage: 5e9}))
	require.NoError(t, h.tree.SetPressure(path, "memory", cgroups.Pressure{Some: cgroups.PressureLine{Total: time.Second, Avg10: 2.5}}))
	c := h.collector()
	s, err := c.Summary(t.Context())
	require.NoError(t, err)

	n := s.Node
	assert.Equal(t, "node-1", n.NodeName)
	assert.EqualValues(t, 1700000000, n.StartTime.Unix())
	assert.EqualValues(t, 74*mib, *n.Memory.UsageBytes)
	assert.EqualValues(t, 64*mib, *n.Memory.WorkingSetBytes, "the working set excludes inactive cache")
	assert.EqualValues(t, 7*gib-64*mib, *n.Memory.AvailableBytes, "available memory excludes huge pages")
	assert.EqualValues(t, 2*mib, *n.Swap.SwapAvailableBytes)
	assert.EqualValues(t, 5e9, *n.CPU.UsageCoreNanoSeconds)
	assert.EqualValues(t, 40*gib, *n.Fs.AvailableBytes)
	assert.EqualValues(t, 50*gib, *n.Fs.UsedBytes)
	assert.EqualValues(t, 600, *n.Fs.InodesUsed)
	assert.EqualValues(t, 3*gib, *n.Runtime.ImageFs.AvailableBytes)
	assert.EqualValues(t, 0, *n.Runtime.ImageFs.UsedBytes, "the value of the runtime")
	assert.Equal(t, n.Runtime.ImageFs.CapacityBytes, n.Runtime.ContainerFs.CapacityBytes)
	assert.EqualValues(t, 20000, *n.Rlimit.MaxPID)
	assert.EqualValues(t, 518, *n.Rlimit.NumOfRunningProcesses)
	assert.EqualValues(t, 100, *n.Network.RxBytes)
	assert.Len(t, n.Network.Interfaces, 1, "the loopback interface is excluded")
	require.Len(t, n.SystemContainers, 2)
	assert.Equal(t, []string{"pods", "runtime"}, []string{n.SystemContainers[0].Name, n.SystemContainers[1].Name})

	require.Len(t, s.Pods, 1)
	p := s.Pods[0]
	assert.Equal(t, statsapi.PodReference{Name: "web", Namespace: "ns", UID: "uid-web"}, p.PodRef)
	assert.EqualValues(t, gib-64*mib, *p.Memory.AvailableBytes)
	assert.Equal(t, 2.5, p.Memory.PSI.Some.Avg10)
	assert.EqualValues(t, 1_000_000, p.Memory.PSI.Some.Total, "in microseconds, for one second")
	assert.EqualValues(t, 2, *p.ProcessStats.ProcessCount)
	assert.EqualValues(t, 1000, *p.Network.RxBytes)
	assert.EqualValues(t, 2000, *p.Network.TxBytes)
	require.Len(t, p.Containers, 1)
	main := p.Containers[0]
	assert.EqualValues(t, 64*mib, *main.Memory.WorkingSetBytes)
	assert.Nil(t, main.Memory.AvailableBytes, "no limit, no available memory")
	assert.EqualValues(t, mib, *main.Swap.SwapAvailableBytes)
	assert.EqualValues(t, 7*mib, *main.Rootfs.UsedBytes)
	assert.EqualValues(t, 10*gib, *main.Rootfs.CapacityBytes)
	assert.EqualValues(t, 7*mib, *p.EphemeralStorage.UsedBytes, "log usage is unknown without Run")
	assert.Nil(t, main.CPU.UsageNanoCores, "no rate after the first measurement")

	short, err := c.CPUAndMemory(t.Context())
	require.NoError(t, err)
	assert.Nil(t, short.Node.Fs)
	assert.Nil(t, short.Pods[0].EphemeralStorage)
	assert.Nil(t, short.Pods[0].Network)
	assert.Equal(t, p.Memory.WorkingSetBytes, short.Pods[0].Memory.WorkingSetBytes)
	assert.Len(t, short.Node.SystemContainers, 2)
}

func TestSignalsReadNodeOnly(t *testing.T) {
	h := newTestNode(t)
	h.pod("web", cgroups.Guaranteed, 64*mib)
	require.NoError(t, h.tree.Apply(t.Context(), "kubepods", cgroups.Resources{MemoryMax: new(int64(gib)), PidsMax: new(int64(100))}))
	c := h.collector()
	s, err := c.Signals(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 7*gib-64*mib, s.Memory.Available)
	assert.EqualValues(t, 7*gib, s.Memory.Capacity)
	assert.EqualValues(t, gib, s.MemAvailable.Available)
	assert.EqualValues(t, 7*gib, s.MemAvailable.Capacity)
	assert.EqualValues(t, gib-64*mib, s.Allocatable.Available)
	assert.EqualValues(t, gib, s.Allocatable.Capacity)
	assert.EqualValues(t, 20000-518, s.PIDs.Available)
	assert.EqualValues(t, 100-2, s.AllocatablePIDs.Available)
	assert.EqualValues(t, 100, s.AllocatablePIDs.Capacity)
	assert.EqualValues(t, 40*gib, s.NodeFs.Available)
	assert.EqualValues(t, 400, s.NodeInodes.Available)
	assert.EqualValues(t, 3*gib, s.ImageFs.Available)
	assert.Equal(t, s.ImageFs, s.ContainerFs)
	assert.Equal(t, []uint64{1, 2, 2}, []uint64{s.NodeDevice, s.ImageDevice, s.ContainerDevice}, "images are on another disk")
	assert.EqualValues(t, mib, s.SwapFree)
	assert.EqualValues(t, 64*mib, s.Pods.Memory.Stat.Anon)

	calls := len(h.rt.Calls())
	for range 10 {
		_, err = c.Signals(t.Context())
		require.NoError(t, err)
	}
	assert.Len(t, h.rt.Calls(), calls, "the runtime is queried once for the image file system")
}

// If a source fails, the error names it, and the values of all other sources are present.
func TestFailedSourceLosesOnlyItsOwnValues(t *testing.T) {
	for _, c := range []struct {
		name   string
		break_ func(h *testNode)
		want   string // error of a summary
		lost   func(s *statsapi.Summary) bool
	}{
		{"nodefs", func(h *testNode) { delete(h.disks, "/var/lib/kubelet") }, "nodefs /var/lib/kubelet: ", func(s *statsapi.Summary) bool { return s.Node.Fs == nil }},
		{"imagefs", func(h *testNode) { delete(h.disks, "/critest") }, "imagefs /critest: ", func(s *statsapi.Summary) bool { return s.Node.Runtime.ImageFs.CapacityBytes == nil }},
		{"meminfo", func(h *testNode) { delete(h.proc, "meminfo") }, "proc: ", func(s *statsapi.Summary) bool { return s.Node.Memory.AvailableBytes == nil }},
		{"loadavg", func(h *testNode) { h.proc["loadavg"].Data = []byte("x") }, `proc: loadavg: no tasks in "x"`, func(s *statsapi.Summary) bool { return s.Node.Rlimit == nil }},
		{"network", func(h *testNode) { h.proc["1/net/dev"].Data = []byte("\n\nx") }, "proc 1/net/dev: net/dev line 3", func(s *statsapi.Summary) bool { return s.Node.Network == nil }},
		{"boot time", func(h *testNode) { delete(h.proc, "stat") }, "proc: ", func(s *statsapi.Summary) bool { return s.Node.StartTime.Unix() < 0 }},
		{"layers", func(h *testNode) { h.failCall("ListContainerStats") }, "runtime container stats: ", func(s *statsapi.Summary) bool { return s.Pods[0].Containers[0].Rootfs.UsedBytes == nil }},
		{"images", func(h *testNode) { h.failCall("ImageFsInfo") }, "runtime image usage: ", func(s *statsapi.Summary) bool { return s.Node.Runtime.ImageFs == nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestNode(t)
			h.pod("web", cgroups.BestEffort, mib)
			c.break_(h)
			s, err := h.collector().Summary(t.Context())
			assert.ErrorContains(t, err, c.want)
			var named *stats.Error
			assert.ErrorAs(t, err, &named)
			assert.True(t, c.lost(s), "the value is missing")
			require.Len(t, s.Pods, 1)
			assert.EqualValues(t, mib, *s.Pods[0].Memory.UsageBytes, "values of other sources are present")
			assert.NotNil(t, s.Node.Memory)
		})
	}
}

// failCall makes one call of the runtime fail.
func (h *testNode) failCall(op string) {
	h.via.Around = func(ctx context.Context, called, _ string, call func(context.Context) error) error {
		if called == op {
			return errors.New("broken")
		}
		return call(ctx)
	}
}

func TestRunMeasuresLogsAndVolumes(t *testing.T) {
	h := newTestNode(t)
	h.opts.Root = t.TempDir()
	h.disks[h.opts.Root] = stats.Filesystem{CapacityBytes: gib}
	volume := filepath.Join(h.opts.Root, "pods/uid-web/volumes/cache")
	logs := filepath.Join(h.opts.LogRoot, "ns_web_uid-web", "main")
	h.disks["/claim"] = stats.Filesystem{CapacityBytes: gib, FreeBytes: gib / 4, AvailableBytes: gib / 4, Inodes: 10, InodesFree: 4}
	h.opts.Volumes = func(uid string) []stats.Volume {
		assert.Equal(t, "uid-web", uid)
		return []stats.Volume{
			{Name: "cache", Path: volume, Ephemeral: true},
			{Name: "data", Path: "/claim", Mounted: true, PVC: &statsapi.PVCReference{Name: "claim", Namespace: "ns"}},
			{Name: "absent", Path: "/absent"},
			{Name: "relative", Path: "x"},
		}
	}
	h.pod("web", cgroups.Burstable, mib)
	write := func(path string, n int) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, make([]byte, n), 0o644))
		h.mu.Lock()
		h.disks[path], h.disks[filepath.Dir(path)] = stats.Filesystem{CapacityBytes: gib}, stats.Filesystem{CapacityBytes: gib}
		h.mu.Unlock()
	}
	write(filepath.Join(volume, "sub/file"), 10<<10)
	write(filepath.Join(logs, "0.log"), 5<<10)
	write(filepath.Join(logs, "0.log.old"), 5<<10)
	write(filepath.Join(logs, "more/not.counted"), 100<<10)
	write(filepath.Join(h.opts.Root, "pods/uid-web/etc-hosts"), 100)
	write(filepath.Join(h.opts.Root, "pods/uid-web/containers/web/0"), 80<<10)
	h.mu.Lock()
	h.disks[filepath.Join(h.opts.Root, "pods/uid-web/containers")] = stats.Filesystem{CapacityBytes: gib}
	h.disks[volume], h.disks[filepath.Dir(logs)] = stats.Filesystem{CapacityBytes: gib}, stats.Filesystem{CapacityBytes: gib}
	h.mu.Unlock()

	c := h.collector()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	var s *statsapi.Summary
	require.Eventually(t, func() bool {
		var err error
		s, err = c.Summary(t.Context())
		require.NoError(t, err)
		return len(s.Pods[0].VolumeStats) == 2
	}, time.Minute, 10*time.Millisecond)
	p := s.Pods[0]
	assert.EqualValues(t, 16<<10, *p.Containers[0].Logs.UsedBytes, "usage in whole blocks, without subdirectories")
	assert.EqualValues(t, 2, *p.Containers[0].Logs.InodesUsed)
	assert.Equal(t, "cache", p.VolumeStats[0].Name)
	assert.EqualValues(t, 3, *p.VolumeStats[0].InodesUsed, "two directories and a file")
	assert.GreaterOrEqual(t, *p.VolumeStats[0].UsedBytes, uint64(12<<10))
	assert.EqualValues(t, gib*3/4, *p.VolumeStats[1].UsedBytes, "the usage of its file system")
	assert.EqualValues(t, 6, *p.VolumeStats[1].InodesUsed)
	assert.Equal(t, "claim", p.VolumeStats[1].PVCRef.Name)
	want := 7*mib + 16<<10 + *p.VolumeStats[0].UsedBytes + 4<<10 + 80<<10 // layer, logs, volume, hosts file, termination message
	assert.InDelta(t, want, *p.EphemeralStorage.UsedBytes, 16<<10, "plus the usage of two directories")
	assert.ErrorIs(t, c.Run(ctx), runonce.ErrTwice)
	cancel()
	assert.NoError(t, <-ended)
}

func TestSamplesHaveCountersOfKernel(t *testing.T) {
	h := newTestNode(t)
	path := h.pod("web", cgroups.Burstable, 3*mib)
	all, err := h.collector().Samples(t.Context(), cgroups.PartMemory|cgroups.PartPids)
	require.NoError(t, err)
	require.Len(t, all, 6, "the node, all pods, the QoS class, the pod, its sandbox and its container")
	var paths []cgroups.Path
	for _, s := range all {
		paths = append(paths, s.Path)
	}
	assert.Equal(t, []cgroups.Path{"", "kubepods", "kubepods/burstable", path, path, path}, paths)
	assert.Equal(t, "web", all[3].Pod.Name)
	assert.EqualValues(t, 2, all[3].Stats.Pids.Current)
	assert.Equal(t, "eth0", all[3].Interfaces[0].Name)
	assert.Equal(t, all[3].Sandbox.ID, all[4].Leaf)
	assert.Empty(t, all[4].Container.ID)
	assert.EqualValues(t, 1, all[4].Stats.Pids.Current)
	assert.Equal(t, "main", all[5].Container.Name)
	assert.EqualValues(t, 3*mib, all[5].Stats.Memory.Current)
}

// A pod that is removed between the list and the sampling of its cgroups is omitted, without an error.
func TestSummaryOmitsPodRemovedDuringMeasurement(t *testing.T) {
	h := newTestNode(t)
	path := h.pod("gone", cgroups.Burstable, mib)
	h.pod("stays", cgroups.Burstable, mib)
	h.opts.Volumes = nil
	c, err := stats.New(h.tree, cri.ListerFunc(h.via.List), h.opts)
	require.NoError(t, err)
	s, err := c.Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 2)
	require.NoError(t, h.tree.Remove(t.Context(), path))
	s, err = c.Summary(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	assert.Equal(t, "stays", s.Pods[0].PodRef.Name)
}

func TestContainerWithoutCgroupHasValuesOfRuntime(t *testing.T) {
	h := newTestNode(t)
	h.rt = critest.New(critest.Options{Usage: func(cri.Container) cri.ContainerStats {
		return cri.ContainerStats{
			CPU:    &cri.CPUUsage{Time: time.Now(), UsageCoreNanoSeconds: new(uint64(5))},
			Memory: &cri.MemoryUsage{Time: time.Now(), WorkingSetBytes: new(uint64(6)), AvailableBytes: new(uint64)},
		}
	}})
	h.via.Runtime = critest.SummaryRuntime{Runtime: h.rt}
	path := h.pod("web", cgroups.Burstable, mib)
	require.NoError(t, h.tree.Remove(t.Context(), path))
	s, err := h.collector().CPUAndMemory(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	assert.EqualValues(t, 6, *s.Pods[0].Memory.WorkingSetBytes, "the sum of its containers")
	assert.EqualValues(t, 5, *s.Pods[0].Containers[0].CPU.UsageCoreNanoSeconds)
	assert.Nil(t, s.Pods[0].Containers[0].Memory.AvailableBytes, "a limit of 0 means no limit")
}

func TestNewReturnsErrorForInvalidOptions(t *testing.T) {
	tree, rt := cgroupstest.New(cgroupstest.Options{}), critest.New(critest.Options{})
	for want, o := range map[string]stats.Options{
		`Options.Root "x" must be absolute`:                       {Root: "x"},
		`Options.LogRoot "x" must be absolute`:                    {LogRoot: "x"},
		"Options.CPUFraction 2 must be more than 0 and at most 1": {CPUFraction: 2},
		"Options.CPUFraction -1 must be":                          {CPUFraction: -1},
		"Options.Timeout -1ns must not be negative":               {Timeout: -1},
		"Options.CgroupRoot: ":                                    {CgroupRoot: "../x"},
		"Options.System[0]: it has no name":                       {System: []stats.SystemContainer{{}}},
		`Options.System[1]: name "a" is taken`:                    {System: []stats.SystemContainer{{Name: "a"}, {Name: "a"}}},
		`Options.System[0]: name "pods" is taken`:                 {System: []stats.SystemContainer{{Name: "pods"}}},
	} {
		_, err := stats.New(tree, rt, o)
		assert.ErrorContains(t, err, want)
	}
	_, err := stats.New(nil, rt, stats.Options{})
	assert.ErrorContains(t, err, "stats.New: argument c is nil")

	part := confined{tree}
	_, err = stats.New(part, rt, stats.Options{})
	assert.ErrorContains(t, err, `the cgroups begin at "/agent"`, "memory.available would be that of the subtree only")
	_, err = stats.New(part, rt, stats.Options{Machine: tree})
	assert.NoError(t, err)
}

// confined is a cgroup tree whose root is not the root cgroup of the machine.
type confined struct{ *cgroupstest.Tree }

func (confined) Root() string { return "/agent" }
