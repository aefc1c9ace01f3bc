// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing/fstest"
	"time"

	cadvisorcontainer "github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/container/libcontainer"
	cadvisorapi "github.com/google/cadvisor/lib/model"
	libcontainercgroups "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	kubestats "k8s.io/kubernetes/pkg/kubelet/stats"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/stats"
)

// house is the measured node of both sides: a runtime with pods, a file system, and cgroups.
type house struct {
	MemTotal, HugePages uint64 // kB
	Root, Pods          *measuredMemory
	Sandboxes           []measuredSandbox
	Disk                stats.Filesystem
	broken              bool // the runtime fails to report the image filesystem
}

// measuredMemory is the usage of a cgroup.
type measuredMemory struct {
	CPU, Current, InactiveFile, Anon, Faults, MajorFaults, Swap uint64
	Max, SwapMax                                                int64
}

type measuredSandbox struct {
	Name       string
	Ready      bool
	Cgroup     *measuredMemory
	Containers []measuredContainer
}

type measuredContainer struct {
	Name                 string
	Running              bool
	CPU                  uint64
	At                   time.Time
	Memory, Swap         uint64
	LayerBytes, LayerIno *uint64
}

// measuredFrom is close to the time of all measurements: the kubelet discards a rate after ten minutes.
var measuredFrom = time.Now()

func (h *house) sandboxes() (kubelet []*runtimeapi.PodSandbox, ours []cri.Sandbox) {
	for i, s := range h.Sandboxes {
		id, uid := "sandbox"+strconv.Itoa(i), "uid"+strconv.Itoa(i)
		created := measuredFrom.Add(time.Duration(i) * time.Second)
		state, state2 := runtimeapi.PodSandboxState_SANDBOX_NOTREADY, cri.SandboxNotReady
		if s.Ready {
			state, state2 = runtimeapi.PodSandboxState_SANDBOX_READY, cri.SandboxReady
		}
		kubelet = append(kubelet, &runtimeapi.PodSandbox{
			Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: s.Name, Namespace: "ns", Uid: uid}, State: state, CreatedAt: created.UnixNano(),
		})
		ours = append(ours, cri.Sandbox{ID: id, Pod: cri.PodIdentity{Name: s.Name, Namespace: "ns", UID: uid}, State: state2, CreatedAt: created})
	}
	return kubelet, ours
}

// kubeletRuntime implements the kubelet's runtime interface for a house.
type kubeletRuntime struct {
	internalapi.RuntimeService
	*house
}

// kubeletImages implements the kubelet's image interface for a house.
type kubeletImages struct {
	internalapi.ImageManagerService
	*house
}

func (r kubeletRuntime) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	all, _ := r.sandboxes()
	return all, nil
}

func (r kubeletRuntime) ListContainers(context.Context, *runtimeapi.ContainerFilter) (all []*runtimeapi.Container, err error) {
	for i, s := range r.Sandboxes {
		for j, c := range s.Containers {
			state := runtimeapi.ContainerState_CONTAINER_EXITED
			if c.Running {
				state = runtimeapi.ContainerState_CONTAINER_RUNNING
			}
			all = append(all, &runtimeapi.Container{
				Id: containerName(i, j), PodSandboxId: "sandbox" + strconv.Itoa(i), State: state,
				Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, CreatedAt: measuredFrom.UnixNano(),
			})
		}
	}
	return all, nil
}

func containerName(i, j int) string { return "container" + strconv.Itoa(i) + "." + strconv.Itoa(j) }

func (r kubeletRuntime) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) (all []*runtimeapi.ContainerStats, err error) {
	wrapped := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	optional := func(n *uint64) *runtimeapi.UInt64Value {
		if n == nil {
			return nil
		}
		return wrapped(*n)
	}
	for i, s := range r.Sandboxes {
		for j, c := range s.Containers {
			if !c.Running {
				continue
			}
			all = append(all, &runtimeapi.ContainerStats{
				Attributes: &runtimeapi.ContainerAttributes{Id: containerName(i, j), Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}},
				Cpu:        &runtimeapi.CpuUsage{Timestamp: c.At.UnixNano(), UsageCoreNanoSeconds: wrapped(c.CPU)},
				Memory:     &runtimeapi.MemoryUsage{Timestamp: c.At.UnixNano(), WorkingSetBytes: wrapped(c.Memory), UsageBytes: wrapped(c.Memory)},
				Swap:       &runtimeapi.SwapUsage{Timestamp: c.At.UnixNano(), SwapUsageBytes: wrapped(c.Swap)},
				WritableLayer: &runtimeapi.FilesystemUsage{
					Timestamp: c.At.UnixNano(), UsedBytes: optional(c.LayerBytes), InodesUsed: optional(c.LayerIno),
					FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"},
				},
			})
		}
	}
	return all, nil
}

func (r kubeletImages) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if r.broken {
		return nil, errors.New("broken")
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: measuredFrom.UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: &runtimeapi.UInt64Value{Value: 5},
	}}}, nil
}

// ourRuntime implements the interface of a Collector for a house.
type ourRuntime struct{ *house }

func (r ourRuntime) List(ctx context.Context) (s cri.Snapshot, err error) {
	_, s.Sandboxes = r.sandboxes()
	for i, sandbox := range r.Sandboxes {
		for j, c := range sandbox.Containers {
			state := cri.ContainerExited
			if c.Running {
				state = cri.ContainerRunning
			}
			s.Containers = append(s.Containers, cri.Container{
				ID: containerName(i, j), Name: c.Name, SandboxID: "sandbox" + strconv.Itoa(i), State: state, CreatedAt: measuredFrom,
			})
		}
	}
	return s, ctx.Err()
}

func (r ourRuntime) ContainerStats(context.Context) (all []cri.ContainerStats, err error) {
	for i, s := range r.Sandboxes {
		for j, c := range s.Containers {
			if c.Running {
				all = append(all, cri.ContainerStats{
					ID: containerName(i, j), Name: c.Name,
					CPU:           &cri.CPUUsage{Time: c.At, UsageCoreNanoSeconds: &c.CPU},
					Memory:        &cri.MemoryUsage{Time: c.At, WorkingSetBytes: &c.Memory, UsageBytes: &c.Memory},
					Swap:          &cri.SwapUsage{Time: c.At, UsageBytes: &c.Swap},
					WritableLayer: &cri.FilesystemUsage{Time: c.At, Mountpoint: "/images", UsedBytes: c.LayerBytes, InodesUsed: c.LayerIno},
				})
			}
		}
	}
	return all, nil
}

func (r ourRuntime) ImageUsage(context.Context) (cri.ImageUsage, error) {
	if r.broken {
		return cri.ImageUsage{}, errors.New("broken")
	}
	return cri.ImageUsage{Images: []cri.FilesystemUsage{{Time: measuredFrom, Mountpoint: "/images", UsedBytes: new(uint64(5))}}}, nil
}

// kubeletCadvisor returns the statistics of cgroups and disk in a house.
type kubeletCadvisor struct {
	cadvisor.Interface
	*house
}

func (c kubeletCadvisor) disk() (cadvisorapi.FsInfo, error) {
	d := c.Disk
	return cadvisorapi.FsInfo{
		Capacity: d.CapacityBytes, Available: d.AvailableBytes, Usage: d.UsedBytes(), Inodes: &d.Inodes, InodesFree: &d.InodesFree,
	}, nil
}

func (c kubeletCadvisor) RootFsInfo() (cadvisorapi.FsInfo, error)         { return c.disk() }
func (c kubeletCadvisor) GetDirFsInfo(string) (cadvisorapi.FsInfo, error) { return c.disk() }

func (c kubeletCadvisor) ContainerInfoV2(name string, o cadvisorapi.RequestOptions) (map[string]cadvisorapi.ContainerInfo, error) {
	infos := map[string]cadvisorapi.ContainerInfo{}
	if c.Root != nil {
		infos["/"] = c.Root.info(c.MemTotal << 10)
	}
	if c.Pods != nil {
		infos["/kubepods"] = c.Pods.info(unsigned(c.Pods.Max))
	}
	if !o.Recursive {
		return map[string]cadvisorapi.ContainerInfo{name: infos[name]}, nil
	}
	for i, s := range c.Sandboxes {
		if s.Cgroup != nil {
			infos["/kubepods/poduid"+strconv.Itoa(i)] = s.Cgroup.info(unsigned(s.Cgroup.Max))
		}
	}
	return infos, nil
}

// unsigned returns a limit in the form in which cAdvisor reads the kernel's "max".
func unsigned(n int64) uint64 {
	if n < 0 {
		return math.MaxUint64
	}
	return uint64(n)
}

// kernel passes the usage to cAdvisor's handler in place of the files of a cgroup.
type kernel struct {
	libcontainercgroups.Manager
	*measuredMemory
}

func (kernel) Path(string) string          { return "/nowhere" }
func (kernel) GetPaths() map[string]string { return nil }

func (k kernel) GetStats() (*libcontainercgroups.Stats, error) {
	s := libcontainercgroups.NewStats()
	s.CpuStats.CpuUsage.TotalUsage = k.CPU
	s.MemoryStats.Usage.Usage = k.Current
	s.MemoryStats.SwapUsage.Usage = k.Current + k.Swap
	s.MemoryStats.Stats = map[string]uint64{"anon": k.Anon, "inactive_file": k.InactiveFile, "pgfault": k.Faults, "pgmajfault": k.MajorFaults}
	return s, nil
}

func (m *measuredMemory) info(limit uint64) cadvisorapi.ContainerInfo {
	s, err := libcontainer.NewHandler(kernel{measuredMemory: m}, "/", 0, cadvisorcontainer.MetricSet{}).GetStats()
	if err != nil {
		panic(err)
	}
	info := cadvisorapi.ContainerInfo{Stats: []*cadvisorapi.ContainerStats{s}}
	info.Spec.HasCpu, info.Spec.HasMemory = true, true
	info.Spec.Memory.Limit, info.Spec.Memory.SwapLimit = limit, unsigned(m.SwapMax)
	return info
}

// ourCgroups implements the cgroups of a Collector for a house.
type ourCgroups struct{ *house }

func (c ourCgroups) Sample(_ context.Context, p cgroups.Path, leaf string, _ cgroups.Parts) (s cgroups.Stats, err error) {
	var m *measuredMemory
	switch {
	case p == "":
		m = c.Root
	case p == "kubepods":
		m = c.Pods
	default:
		uid, _ := cgroups.PodUID("", p)
		if i, err := strconv.Atoi(uid[len("uid"):]); err == nil {
			m = c.Sandboxes[i].Cgroup
		}
	}
	if m == nil || leaf != "" {
		return s, errors.New("there is no such cgroup")
	}
	s.CPU.Usage = m.CPU
	s.Memory.Current, s.Memory.Swap, s.Memory.Max, s.Memory.SwapMax = m.Current, m.Swap, &m.Max, &m.SwapMax
	s.Memory.Stat = cgroups.MemoryStat{Anon: m.Anon, InactiveFile: m.InactiveFile, PageFaults: m.Faults, MajorPageFaults: m.MajorFaults}
	return s, nil
}

func (ourCgroups) ChildDirs(context.Context, cgroups.Path) ([]string, error) { return nil, nil }
func (ourCgroups) Procs(context.Context, cgroups.Path) ([]int, error)        { return nil, nil }
func (c ourCgroups) Children(_ context.Context, p cgroups.Path) (names []string, err error) {
	if p != "kubepods" {
		return nil, nil
	}
	for i, s := range c.Sandboxes {
		if s.Cgroup != nil {
			names = append(names, "poduid"+strconv.Itoa(i))
		}
	}
	return names, nil
}

// noVolumes is an analyzer without measurements.
type noVolumes struct{ serverstats.ResourceAnalyzer }

func (noVolumes) GetPodVolumeStats(types.UID) (serverstats.PodVolumeStats, bool) {
	return serverstats.PodVolumeStats{}, false
}

// kubeletSummary has the providers of the kubelet's summary.
type kubeletSummary struct {
	serverstats.Provider
	p *kubestats.Provider
	h *house
}

func newKubeletSummary(h *house) kubeletSummary {
	r := kubeletRuntime{house: h}
	hosts := kubestats.NewHostStatsProvider(kubecontainer.RealOS{}, func(types.UID) string { return "/nowhere/etc-hosts" }, "/nowhere")
	p := kubestats.NewCRIStatsProvider(kubeletCadvisor{house: h}, noVolumes{}, nil, r, kubeletImages{house: h}, hosts, false, false, nil)
	return kubeletSummary{p: p, h: h}
}

func (n kubeletSummary) GetNode(context.Context) (*v1.Node, error) {
	node := &v1.Node{}
	node.Name = "node"
	node.Status.Capacity = v1.ResourceList{"hugepages-2Mi": *resource.NewQuantity(int64(n.h.HugePages<<10), resource.BinarySI)}
	return node, nil
}
func (n kubeletSummary) GetNodeConfig() cm.NodeConfig { return cm.NodeConfig{} }
func (n kubeletSummary) GetPodCgroupRoot() string     { return "/kubepods" }
func (n kubeletSummary) GetCgroupStats(ctx context.Context, name string, update bool) (*statsapi.ContainerStats, *statsapi.NetworkStats, error) {
	return n.p.GetCgroupStats(ctx, name, update)
}
func (n kubeletSummary) RootFsStats() (*statsapi.FsStats, error) { return n.p.RootFsStats() }
func (n kubeletSummary) ImageFsStats(ctx context.Context) (image, layers *statsapi.FsStats, err error) {
	return n.p.ImageFsStats(ctx)
}

func (n kubeletSummary) ListPodStats(ctx context.Context) ([]statsapi.PodStats, error) {
	return n.p.ListPodStats(ctx)
}
func (n kubeletSummary) RlimitStats() (*statsapi.RlimitStats, error) { return n.p.RlimitStats() }

// collector returns our Collector for a house.
func (h *house) collector(c stats.Cgroups) *stats.Collector {
	k, err := stats.New(c, ourRuntime{h}, stats.Options{
		NodeName: "node", RuntimePeriod: time.Nanosecond, Timeout: time.Minute,
		Statfs: func(string) (stats.Filesystem, error) { return h.Disk, nil },
		Proc: fstest.MapFS{
			"meminfo":                {Data: []byte("MemTotal: " + strconv.FormatUint(h.MemTotal, 10) + " kB\nHugetlb: " + strconv.FormatUint(h.HugePages, 10) + " kB\n")},
			"loadavg":                {Data: []byte("0 0 0 1/2 3\n")},
			"sys/kernel/pid_max":     {Data: []byte("9\n")},
			"sys/kernel/threads-max": {Data: []byte("9\n")},
			"stat":                   {Data: []byte("btime 1\n")},
			"1/net/dev":              {Data: []byte("\n\n")},
		},
	})
	if err != nil {
		panic(err)
	}
	return k
}
