// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	libcontainercgroups "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/qos"
)

func TestPodCgroup(t *testing.T) {
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			host(version.v2)
			run(t, podCgroups(version.v2))
		})
	}
}

func FuzzPodCgroup(f *testing.F) {
	host(true)
	fuzz(f, podCgroups(true))
}

func FuzzPodCgroupV1(f *testing.F) {
	host(false)
	fuzz(f, podCgroups(false))
}

var versions = []struct {
	name string
	v2   bool
}{{"v1", false}, {"v2", true}}

type podInput struct {
	Pod  *corev1.Pod
	Node qos.Node
}

// makeNode returns a node with a valid configuration of the kubelet.
func makeNode(c *conformance.Choices, v2 bool) qos.Node {
	n := qos.Node{
		MemoryCapacity: conformance.Pick[int64](c, 16<<30, 4_000_000_000, 256<<20, 1<<40),
		CgroupV1:       !v2,
		Swap:           conformance.Pick[qos.SwapBehavior](c, "", qos.NoSwap, qos.LimitedSwap, qos.LimitedSwap),
		Reservation:    conformance.Pick(c, qos.MemoryReservationNone, "", qos.TieredReservation, qos.TieredReservation),
		CPUPeriod:      time.Duration(conformance.Pick(c, 0, 100, 5, 1, 1000)) * time.Millisecond,
		NoCPUQuota:     c.OneIn(6),
		HugepageSizes:  pageSizes,
		PodPidsLimit:   conformance.Pick[int64](c, 0, -1, 100, 4194304),
	}
	n.SwapCapacity = conformance.Pick[int64](c, 0, 5<<30, n.MemoryCapacity)
	n.NoSwapController = c.OneIn(4)
	if !c.OneIn(3) {
		n.MemoryAllocatable = n.MemoryCapacity / 10 * 9
	}
	if !c.OneIn(3) {
		n.ThrottlingFactor = new(conformance.Pick(c, 0.9, 0.5, 1, 0.1))
	}
	if !c.OneIn(3) {
		n.SingleProcessOOMKill = new(c.OneIn(2))
	}
	return n
}

// kubeletConfig converts n to the kubelet's configuration of its container manager.
func kubeletConfig(n qos.Node) cm.NodeConfig {
	return cm.NodeConfig{
		CgroupsPerQOS:           true,
		CgroupRoot:              "/",
		MemoryReservationPolicy: reservation(n),
		MemoryThrottlingFactor:  n.ThrottlingFactor,
		PodPidsLimit:            n.PodPidsLimit,
		EnforceCPULimits:        !n.NoCPUQuota,
		CPUCFSQuotaPeriod:       cfsPeriod(n),
	}
}

// reservation and cfsPeriod return the defaults of the kubelet's configuration for unset values.
func reservation(n qos.Node) kubeletconfig.MemoryReservationPolicy {
	if n.Reservation == "" {
		return kubeletconfig.NoneMemoryReservationPolicy
	}
	return kubeletconfig.MemoryReservationPolicy(n.Reservation)
}

func cfsPeriod(n qos.Node) time.Duration {
	if n.CPUPeriod == 0 {
		return 100 * time.Millisecond
	}
	return n.CPUPeriod
}

// recorder is a cgroup manager that records the limits in force after all writes.
type recorder struct {
	cm.CgroupManager // nil: other methods panic
	names            cm.CgroupManager
	written          func(name string) // called without the lock; may be nil

	mu     sync.Mutex // guards the fields below
	limits map[string]cgroupLimits
}

func newRecorder() *recorder {
	return &recorder{
		names:  cm.NewCgroupV1Manager(klog.Background(), &cm.CgroupSubsystems{}, "cgroupfs"),
		limits: map[string]cgroupLimits{},
	}
}

func (r *recorder) Name(n cm.CgroupName) string       { return r.names.Name(n) }
func (r *recorder) CgroupName(s string) cm.CgroupName { return r.names.CgroupName(s) }
func (r *recorder) Validate(cm.CgroupName) error      { return nil }

func (r *recorder) Exists(n cm.CgroupName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.limits[n.ToCgroupfs()]
	return ok
}

func (r *recorder) Create(logger klog.Logger, config *cm.CgroupConfig) error {
	return r.Update(logger, config)
}

func (r *recorder) Update(_ klog.Logger, config *cm.CgroupConfig) error {
	name := config.Name.ToCgroupfs()
	l := kubeletLimits(cm.ConformanceResources(context.Background(), config.ResourceParameters))
	r.mu.Lock()
	r.limits[name] = r.limits[name].then(l)
	r.mu.Unlock()
	if r.written != nil {
		r.written(name)
	}
	return nil
}

// cgroupLimits has the limits of a cgroup, in the format of the files of one version. Zero means not written.
type cgroupLimits struct {
	Shares, Weight, Period uint64
	Quota                  int64
	Memory, Pids           *int64
	Cpuset                 string
	Hugetlb                map[string]int64
	Unified                map[string]string
}

// then returns the limits in force after next is written.
func (l cgroupLimits) then(next cgroupLimits) cgroupLimits {
	l.Shares, l.Weight, l.Period = cmp.Or(next.Shares, l.Shares), cmp.Or(next.Weight, l.Weight), cmp.Or(next.Period, l.Period)
	l.Quota, l.Cpuset = cmp.Or(next.Quota, l.Quota), cmp.Or(next.Cpuset, l.Cpuset)
	l.Memory, l.Pids = cmp.Or(next.Memory, l.Memory), cmp.Or(next.Pids, l.Pids)
	if l.Hugetlb == nil {
		return next
	}
	maps.Copy(l.Hugetlb, next.Hugetlb)
	maps.Copy(l.Unified, next.Unified)
	return l
}

// kubeletLimits returns the limits that the kubelet passes to its cgroup library. The library ignores a limit of zero.
func kubeletLimits(r *libcontainercgroups.Resources) cgroupLimits {
	l := cgroupLimits{
		Shares: r.CpuShares, Weight: r.CpuWeight, Period: r.CpuPeriod, Quota: r.CpuQuota, Pids: r.PidsLimit,
		Cpuset: r.CpusetCpus, Hugetlb: map[string]int64{}, Unified: map[string]string{},
	}
	if l.Pids != nil {
		l.Pids = new(max(*l.Pids, 1)) // as in the library
	}
	if r.Memory != 0 {
		l.Memory = &r.Memory
	}
	for _, h := range r.HugetlbLimit {
		l.Hugetlb[h.Pagesize] = int64(h.Limit)
	}
	maps.Copy(l.Unified, r.Unified)
	return l
}

// ourLimits returns the limits that the driver writes for r. It uses the kubelet's formula for the weight.
func ourLimits(r cgroups.Resources, v2 bool) cgroupLimits {
	l := cgroupLimits{
		Period: r.CPUPeriod, Quota: r.CPUQuota, Memory: r.MemoryMax, Pids: r.PidsMax,
		Cpuset: r.CpusetCPUs, Hugetlb: map[string]int64{}, Unified: map[string]string{},
	}
	maps.Copy(l.Hugetlb, r.Hugetlb)
	if !v2 {
		l.Shares = r.CPUShares
		return l
	}
	l.Weight = cgroups.WeightFromShares(r.CPUShares, cgroups.WeightLinear)
	for file, value := range map[string]*int64{"memory.min": r.MemoryMin, "memory.low": r.MemoryLow, "memory.high": r.MemoryHigh} {
		if value != nil {
			l.Unified[file] = strconv.FormatInt(*value, 10)
		}
	}
	maps.Copy(l.Unified, r.Unified)
	return l
}

// podCgroups compares the limits of a new pod cgroup.
func podCgroups(v2 bool) conformance.Comparison[podInput, map[string]cgroupLimits] {
	return conformance.Comparison[podInput, map[string]cgroupLimits]{
		Make: func(c *conformance.Choices) podInput { return podInput{conformance.Pod(c), makeNode(c, v2)} },
		Kubelet: func(in podInput) map[string]cgroupLimits {
			ctx := context.Background()
			r := newRecorder()
			pods := cm.NewConformanceNode(ctx, kubeletConfig(in.Node), nil, 0, r, nil).Pods()
			if err := pods.EnsureExists(klog.Background(), in.Pod); err != nil {
				panic(err)
			}
			return r.limits
		},
		Ours: func(in podInput) map[string]cgroupLimits {
			p := cgroups.PodPath("", classOf(in.Pod), string(in.Pod.UID))
			return map[string]cgroupLimits{p.Cgroupfs(): ourLimits(podtree.ForPod(in.Pod, in.Node), v2)}
		},
		Exceptions: []conformance.Exception[podInput, map[string]cgroupLimits]{{
			Name:   "overflow",
			Reason: "CPUs or bytes beyond an int64 are the largest number; the kubelet's numbers wrap around",
			When:   func(in podInput) bool { return overflowsCPU(in.Pod) || overflowsMemory(in.Pod, 8) },
		}, {
			Name:   "overhead twice",
			Reason: "computing totals does not change a pod; the kubelet adds the overhead to the pod in each of two computations",
			When:   func(in podInput) bool { return sharedDecimal(in.Pod) },
		}, {
			Name:   "no page size",
			Reason: "huge pages of an invalid size have no limit; the kubelet writes a limit for 0PB or -2MB",
			When:   func(in podInput) bool { return hasInvalidPageSize(in.Pod, nil) },
		}, {
			Name:   "negative",
			Reason: "a negative amount of huge pages counts as zero; the kubelet writes the negative number",
			When:   func(in podInput) bool { return hasNegative(in.Pod, corev1.ResourceHugePagesPrefix) },
		}},
	}
}
