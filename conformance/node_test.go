// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/qos"
)

func TestAllocatable(t *testing.T) { run(t, allocatable) }
func FuzzAllocatable(f *testing.F) { fuzz(f, allocatable) }

func TestNodeCgroups(t *testing.T) {
	for _, version := range versions {
		t.Run(version.name, func(t *testing.T) {
			host(version.v2)
			run(t, nodeCgroups(version.v2))
		})
	}
}

func FuzzNodeCgroups(f *testing.F) {
	host(true)
	fuzz(f, nodeCgroups(true))
}

func FuzzNodeCgroupsV1(f *testing.F) {
	host(false)
	fuzz(f, nodeCgroups(false))
}

// nodeInput is the configuration of a node.
type nodeInput struct {
	Capacity             corev1.ResourceList
	PIDs                 int64
	System, Kube         corev1.ResourceList
	MemoryFree, NodeFree string // hard eviction thresholds
	Enforce              []podtree.Enforcement
	Node                 qos.Node
	QOSReserved          *int64
	Pods                 []*corev1.Pod
}

// makeCapacity returns an input with the capacity and reservations of a node.
func makeCapacity(c *conformance.Choices) nodeInput {
	in := nodeInput{
		Capacity: corev1.ResourceList{
			"cpu":               *resource.NewQuantity(conformance.Pick[int64](c, 2, 4, 64, 1), resource.DecimalSI),
			"memory":            *resource.NewQuantity(conformance.Pick[int64](c, 16<<30, 10<<30, 4_000_000_000, 256<<20), resource.BinarySI),
			"ephemeral-storage": *resource.NewQuantity(conformance.Pick[int64](c, 100<<30, 123_456_789_012), resource.BinarySI),
		},
		PIDs:       conformance.Pick[int64](c, 32768, 4194304),
		System:     reserved(c),
		Kube:       reserved(c),
		MemoryFree: conformance.Pick(c, "", "100Mi", "5%", "0%", "100%", "12.5%", "99%", "1", "1Gi"),
		NodeFree:   conformance.Pick(c, "", "10%", "5%", "1Gi", "0.1%"),
	}
	for _, size := range []corev1.ResourceName{"hugepages-2Mi", "hugepages-1Gi"} {
		if c.OneIn(3) {
			in.Capacity[size] = *resource.NewQuantity(conformance.Pick[int64](c, 0, 1<<30, 4<<30), resource.BinarySI)
		}
	}
	return in
}

// reserved returns a reservation that the kubelet's command line accepts: four resources, none negative.
func reserved(c *conformance.Choices) corev1.ResourceList {
	if c.OneIn(4) {
		return nil
	}
	l := corev1.ResourceList{}
	for _, kind := range []struct {
		name  corev1.ResourceName
		value string
	}{
		{"cpu", conformance.Pick(c, "", "100m", "1", "250m", "0", "8")},
		{"memory", conformance.Pick(c, "", "200Mi", "1Gi", "100M", "0", "20Gi")},
		{"ephemeral-storage", conformance.Pick(c, "", "1Gi", "0")},
		{"pid", conformance.Pick(c, "", "1000", "100000")},
	} {
		if kind.value != "" {
			l[kind.name] = resource.MustParse(kind.value)
		}
	}
	return l
}

// kubelet returns the kubelet's container manager for the node, and the cgroups that it writes.
func (in nodeInput) kubelet(ctx context.Context) (*cm.ConformanceNode, *recorder) {
	config := kubeletConfig(in.Node)
	config.NodeAllocatableConfig = cm.NodeAllocatableConfig{
		SystemReserved: in.System, SystemReservedCgroupName: "/system",
		KubeReserved: in.Kube, KubeReservedCgroupName: "/agent",
		EnforceNodeAllocatable: sets.New[string](),
		HardEvictionThresholds: in.thresholds(),
	}
	for _, key := range in.Enforce {
		config.EnforceNodeAllocatable.Insert(string(key))
	}
	if in.QOSReserved != nil {
		config.QOSReserved = map[corev1.ResourceName]int64{"memory": *in.QOSReserved}
	}
	r := newRecorder()
	return cm.NewConformanceNode(ctx, config, in.Capacity, in.PIDs, r, func() []*corev1.Pod { return in.Pods }), r
}

// thresholds returns the hard eviction thresholds, parsed by the kubelet.
func (in nodeInput) thresholds() []evictionapi.Threshold {
	statements := map[string]string{"memory.available": in.MemoryFree, "nodefs.available": in.NodeFree}
	maps.DeleteFunc(statements, func(_, value string) bool { return value == "" })
	list, err := eviction.ParseThresholdConfig(nil, statements, nil, nil, nil)
	if err != nil {
		panic(err) // all thresholds are valid
	}
	return list
}

// ours returns the options of package podtree for the node.
func (in nodeInput) ours() podtree.Options {
	o := podtree.Options{
		Node: in.Node, Capacity: in.Capacity, MaxPIDs: in.PIDs,
		Reserved: podtree.Reserved{System: in.System, Kube: in.Kube, MemoryAvailable: keepFree(in.MemoryFree), NodeFSAvailable: keepFree(in.NodeFree)},
		Enforce:  in.Enforce, SystemCgroup: "system", KubeCgroup: "agent", QOSReserved: in.QOSReserved,
	}
	if o.Enforce == nil {
		o.Enforce = []podtree.Enforcement{}
	}
	return o
}

func keepFree(text string) podtree.EvictionReserve {
	if text == "" {
		return podtree.EvictionReserve{}
	}
	reserve, err := parseReserve(text)
	if err != nil {
		panic(err)
	}
	return reserve
}

// podShare has the resources of a node for pods.
type podShare struct {
	ForPods, Reserved, Reported corev1.ResourceList
	Refused                     bool
}

var allocatable = conformance.Comparison[nodeInput, podShare]{
	Make: makeCapacity,
	Kubelet: func(in nodeInput) podShare {
		n, _ := in.kubelet(context.Background())
		absolute, reserved, err := n.Allocatable()
		return podShare{absolute, reserved, in.reported(reserved), err != nil}
	},
	Ours: func(in nodeInput) podShare {
		r := in.ours().Reserved
		return podShare{
			r.ForPods(in.Capacity), r.Reservation(in.Capacity), r.Allocatable(in.Capacity),
			r.Validate(in.Capacity) != nil,
		}
	},
	Same: func(kubelet, ours podShare) bool {
		return sameList(kubelet.ForPods, ours.ForPods) && sameList(kubelet.Reserved, ours.Reserved) &&
			sameList(kubelet.Reported, ours.Reported) && kubelet.Refused == ours.Refused
	},
}

// reported returns the allocatable resources that the kubelet reports.
func (in nodeInput) reported(reserved corev1.ResourceList) corev1.ResourceList {
	machine := &cadvisorapi.MachineInfo{
		NumCores:       int(in.Capacity.Cpu().Value()),
		MemoryCapacity: uint64(in.Capacity.Memory().Value()),
	}
	for name, q := range in.Capacity {
		if size, err := helper.HugePageSizeFromResourceName(name); err == nil {
			machine.HugePages = append(machine.HugePages, cadvisorapi.HugePagesInfo{
				PageSize: uint64(size.Value()) / 1024, NumPages: uint64(q.Value() / size.Value()),
			})
		}
	}
	var node corev1.Node
	err := nodestatus.MachineInfo("", 0, 0,
		func() (*cadvisorapi.MachineInfo, error) { return machine, nil },
		func(klog.Logger, bool) corev1.ResourceList { return in.Capacity },
		func(klog.Logger) (corev1.ResourceList, corev1.ResourceList, []string) { return nil, nil, nil },
		func() corev1.ResourceList { return reserved },
		nil, func() *bool { return nil }, true)(context.Background(), &node)
	if err != nil {
		panic(err) // MachineInfo never returns an error
	}
	delete(node.Status.Allocatable, corev1.ResourcePods) // it cannot be reserved
	return node.Status.Allocatable
}

// nodeCgroups compares the limits of all cgroups except those of pods, some time after the start.
func nodeCgroups(v2 bool) conformance.Comparison[nodeInput, map[string]cgroupLimits] {
	c := conformance.Comparison[nodeInput, map[string]cgroupLimits]{
		Make: func(c *conformance.Choices) nodeInput {
			in := makeCapacity(c)
			in.Node = makeNode(c, v2)
			for _, key := range []podtree.Enforcement{
				podtree.EnforcePods,
				conformance.Pick(c, "", podtree.EnforceSystem, podtree.EnforceSystemCompressible),
				conformance.Pick(c, "", podtree.EnforceKube, podtree.EnforceKubeCompressible),
			} {
				if key != "" && !c.OneIn(5) {
					in.Enforce = append(in.Enforce, key)
				}
			}
			if c.OneIn(3) {
				in.QOSReserved = conformance.Pick(c, new(int64(50)), new(int64(100)), new(int64(0)), new(int64(33)))
			}
			for range c.Int(4) {
				in.Pods = append(in.Pods, conformance.Pod(c))
			}
			return in
		},
		Kubelet: func(in nodeInput) map[string]cgroupLimits {
			ctx := context.Background()
			n, r := in.kubelet(ctx)
			writes := make(chan string, 16)
			enforced := func() {
				for range kubepodsWrites(in.Node) {
					for <-writes != "/kubepods" {
					}
				}
			}
			r.written = func(name string) { writes <- name }
			if err := n.Start(ctx, enforced); err != nil {
				return nil
			}
			return r.limits
		},
		Ours: func(in nodeInput) map[string]cgroupLimits {
			reserved, err := podtree.PlanReserved(in.ours())
			if err != nil {
				return nil
			}
			return plannedLimits(append(podtree.Plan(in.ours(), in.Pods, true), reserved...), v2)
		},
		Exceptions: []conformance.Exception[nodeInput, map[string]cgroupLimits]{{
			Name:   "overflow",
			Reason: "CPUs or bytes beyond an int64 are the largest number; the kubelet's numbers wrap around",
			When: func(in nodeInput) bool {
				return in.anyPod(func(p *corev1.Pod) bool { return overflowsCPU(p) || overflowsMemory(p, 100*8) })
			},
		}, {
			Name:   "negative",
			Reason: "a negative request counts as zero; the kubelet subtracts it from the requests of other pods",
			When: func(in nodeInput) bool {
				return in.anyPod(func(p *corev1.Pod) bool { return hasNegative(p, "cpu") || hasNegative(p, "memory") })
			},
		}, {
			Name:   "compressible",
			Reason: "a compressible reservation limits the CPU only; the kubelet also removes all huge pages from the cgroup",
			When: func(in nodeInput) bool {
				return slices.Contains(in.Enforce, podtree.EnforceSystemCompressible) || slices.Contains(in.Enforce, podtree.EnforceKubeCompressible)
			},
			Want: func(in nodeInput, written map[string]cgroupLimits) map[string]cgroupLimits {
				for key, name := range map[podtree.Enforcement]string{podtree.EnforceSystemCompressible: "/system", podtree.EnforceKubeCompressible: "/agent"} {
					if slices.Contains(in.Enforce, key) {
						clear(written[name].Hugetlb)
					}
				}
				return written
			},
		}, {
			Name:   "overhead twice",
			Reason: "computing totals does not change a pod; the kubelet adds the overhead to the pod in each of two computations",
			When:   func(in nodeInput) bool { return in.anyPod(sharedDecimal) },
		}, {
			Name:   "nothing left",
			Reason: "if qosReserved leaves no memory, the limit is 0; the kubelet's is negative or is not written",
			When: func(in nodeInput) bool {
				n, _ := in.kubelet(context.Background())
				absolute, _, _ := n.Allocatable()
				return in.QOSReserved != nil && !absolute.Memory().IsZero()
			},
			Want: func(_ nodeInput, written map[string]cgroupLimits) map[string]cgroupLimits {
				for _, name := range []string{"/kubepods/burstable", "/kubepods/besteffort"} {
					l := written[name]
					l.Memory = new(max(deref(l.Memory), 0))
					written[name] = l
				}
				return written
			},
		}},
	}
	return c
}

// deref returns the number, or zero for nil.
func deref(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// anyPod reports whether such returns true for one of the pods.
func (in nodeInput) anyPod(such func(*corev1.Pod) bool) bool {
	return slices.ContainsFunc(in.Pods, such)
}

// kubepodsWrites returns the number of writes to kubepods during the start: its creation, the removal of limits of another
// reservation policy, and the enforcement of limits.
func kubepodsWrites(n qos.Node) int {
	if n.CgroupV1 || n.Reservation == qos.TieredReservation {
		return 2
	}
	return 3
}

// plannedLimits returns the limits that updates write.
func plannedLimits(updates []podtree.Update, v2 bool) map[string]cgroupLimits {
	limits := map[string]cgroupLimits{}
	for _, u := range updates {
		l := ourLimits(u.Resources, v2)
		for size, limit := range l.Hugetlb {
			if limit == cgroups.Unlimited {
				l.Hugetlb[size] = 1 << 62 // the kubelet's value for no limit
			}
		}
		limits[u.Path.Cgroupfs()] = l
	}
	return limits
}
