// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/cgroupstest"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/stats"
)

func TestSummaryRates(t *testing.T)   { run(t, summaryRates) }
func FuzzSummaryRates(f *testing.F)   { fuzz(f, summaryRates) }
func TestSummaryStorage(t *testing.T) { run(t, summaryStorage) }
func FuzzSummaryStorage(f *testing.F) { fuzz(f, summaryStorage) }
func TestSummaryNode(t *testing.T) {
	host(true)
	summaryNode.Run(t, flags.AtMost(100_000)) // each input computes two complete summaries
}

// measured is one measurement of a container.
type measured struct {
	Usage uint64
	After time.Duration
}

// unknown represents an unknown rate.
const unknown = math.MaxUint64

func (h *house) measure(usage uint64, at time.Time) {
	h.Sandboxes = []measuredSandbox{{Name: "p", Ready: true, Containers: []measuredContainer{{Name: "c", Running: true, CPU: usage, At: at}}}}
}

func rateOf(pods []statsapi.PodStats) uint64 {
	if rate := pods[0].Containers[0].CPU.UsageNanoCores; rate != nil {
		return *rate
	}
	return unknown
}

// each takes the measurements in order and returns the rate after each.
func each(in []measured, measure func(h *house) func() uint64) (rates []uint64) {
	h := &house{}
	next := measure(h)
	at := time.Now() // not measuredFrom: earlier tests may take longer than the kubelet keeps a rate
	for _, m := range in {
		at = at.Add(m.After)
		h.measure(m.Usage, at)
		rates = append(rates, next())
	}
	return rates
}

func anyAfter(in []measured, match func(time.Duration) bool) bool {
	return slices.ContainsFunc(in[min(1, len(in)):], func(m measured) bool { return match(m.After) })
}

var summaryRates = conformance.Comparison[[]measured, []uint64]{
	Make: func(c *conformance.Choices) (all []measured) {
		var usage uint64
		for range c.Int(6) {
			usage += c.Uint64() >> 16
			if c.OneIn(8) {
				usage = c.Uint64() >> 16
			}
			after := conformance.Pick(c, 10*time.Second, time.Second, 1500*time.Millisecond, 2*time.Second, 15*time.Second+1)
			if c.OneIn(16) {
				after = conformance.Pick(c, 0, 1, time.Second-1, 300*time.Millisecond)
			}
			if c.OneIn(16) {
				after = conformance.Pick(c, -1, -time.Second, -time.Minute)
			}
			all = append(all, measured{usage, after})
		}
		return all
	},
	Kubelet: func(in []measured) []uint64 {
		return each(in, func(h *house) func() uint64 {
			n := newKubeletSummary(h)
			return func() uint64 {
				pods, err := n.p.ListPodStatsAndUpdateCPUNanoCoreUsage(context.Background())
				if err != nil {
					panic(err)
				}
				return rateOf(pods)
			}
		})
	},
	Ours: func(in []measured) []uint64 {
		return each(in, func(h *house) func() uint64 {
			k := h.collector(cgroupstest.New(cgroupstest.Options{}))
			return func() uint64 {
				s, err := k.CPUAndMemory(context.Background())
				if err != nil {
					panic(err)
				}
				return rateOf(s.Pods)
			}
		})
	},
	Exceptions: []conformance.Exception[[]measured, []uint64]{{
		Name:   "too soon",
		Reason: "a rate covers at least one second; the kubelet's covers any time, and is unknown if no time has passed",
		When: func(in []measured) bool {
			return anyAfter(in, func(d time.Duration) bool { return d >= 0 && d < time.Second })
		},
	}, {
		Name:   "clock set back",
		Reason: "the last rate is kept; the kubelet reports none",
		When:   func(in []measured) bool { return anyAfter(in, func(d time.Duration) bool { return d < 0 }) },
	}},
}

// podNumbers has the compared numbers of a pod. A missing number is zero.
type podNumbers struct {
	Name, UID                           string
	Started                             int64
	CPU, Memory, Usage, Swap            uint64
	EphemeralBytes, EphemeralInodes     uint64
	EphemeralAvailable, EphemeralInodeS uint64
	Containers                          []containerNumbers
}

type containerNumbers struct {
	Name                           string
	CPU, Memory, Usage, Swap       uint64
	Rootfs, RootfsInodes, Capacity uint64
}

func valueOf(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

func podNumbersOf(pods []statsapi.PodStats) (out []podNumbers) {
	for _, p := range pods {
		n := podNumbers{Name: p.PodRef.Name, UID: p.PodRef.UID, Started: p.StartTime.UnixNano()}
		n.CPU, n.Memory, n.Usage = valueOf(p.CPU.UsageCoreNanoSeconds), valueOf(p.Memory.WorkingSetBytes), valueOf(p.Memory.UsageBytes)
		n.Swap = valueOf(p.Swap.SwapUsageBytes)
		n.EphemeralBytes, n.EphemeralInodes = valueOf(p.EphemeralStorage.UsedBytes), valueOf(p.EphemeralStorage.InodesUsed)
		n.EphemeralAvailable, n.EphemeralInodeS = valueOf(p.EphemeralStorage.AvailableBytes), valueOf(p.EphemeralStorage.Inodes)
		for _, c := range p.Containers {
			n.Containers = append(n.Containers, containerNumbers{
				Name: c.Name, CPU: valueOf(c.CPU.UsageCoreNanoSeconds), Memory: valueOf(c.Memory.WorkingSetBytes), Usage: valueOf(c.Memory.UsageBytes),
				Swap: valueOf(c.Swap.SwapUsageBytes), Rootfs: valueOf(c.Rootfs.UsedBytes), RootfsInodes: valueOf(c.Rootfs.InodesUsed), Capacity: valueOf(c.Rootfs.CapacityBytes),
			})
		}
		slices.SortFunc(n.Containers, func(a, b containerNumbers) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.CPU, b.CPU), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Rootfs, b.Rootfs))
		})
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b podNumbers) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// amount returns a number of bytes, sometimes an impossibly large one.
func amount(c *conformance.Choices) uint64 {
	if c.OneIn(64) {
		return math.MaxUint64 - uint64(c.Int(256))
	}
	return c.Uint64() >> 8
}

func optionalAmount(c *conformance.Choices) *uint64 {
	if c.OneIn(8) {
		return nil
	}
	n := amount(c)
	return &n
}

func makeHouse(c *conformance.Choices) *house {
	h := &house{MemTotal: 1 << 23, Disk: stats.Filesystem{CapacityBytes: c.Uint64() >> 4, AvailableBytes: 7, FreeBytes: 8, Inodes: 99, InodesFree: 9}}
	for range c.Int(5) {
		s := measuredSandbox{Name: conformance.Pick(c, "a", "b", "c"), Ready: !c.OneIn(3)}
		for range c.Int(4) {
			s.Containers = append(s.Containers, measuredContainer{
				Name: conformance.Pick(c, "x", "y", "z"), Running: !c.OneIn(4), At: measuredFrom, CPU: amount(c), Memory: amount(c), Swap: amount(c),
				LayerBytes: optionalAmount(c), LayerIno: optionalAmount(c),
			})
		}
		h.Sandboxes = append(h.Sandboxes, s)
	}
	return h
}

// sumsOverflow reports whether a sum over the containers of a pod overflows.
func sumsOverflow(h *house) bool {
	for _, s := range h.Sandboxes {
		var sums [5]uint64
		for _, c := range s.Containers {
			for i, n := range []uint64{c.CPU, c.Memory, c.Swap, valueOf(c.LayerBytes), valueOf(c.LayerIno)} {
				sum, carry := bits.Add64(sums[i], n, 0)
				if carry > 0 {
					return true
				}
				sums[i] = sum
			}
		}
	}
	return false
}

var summaryStorage = conformance.Comparison[*house, []podNumbers]{
	Make: makeHouse,
	Kubelet: func(h *house) []podNumbers {
		pods, err := newKubeletSummary(h).p.ListPodStats(context.Background())
		if err != nil {
			panic(err)
		}
		return podNumbersOf(pods)
	},
	Ours: func(h *house) []podNumbers {
		s, err := h.collector(cgroupstest.New(cgroupstest.Options{})).Summary(context.Background())
		if err != nil {
			panic(err)
		}
		return podNumbersOf(s.Pods)
	},
	Exceptions: []conformance.Exception[*house, []podNumbers]{{
		Name:   "too much",
		Reason: "a sum that overflows is the largest number; the kubelet's wraps around",
		When:   sumsOverflow,
	}},
}

// nodeNumbers has the compared numbers of a node and its cgroups.
type nodeNumbers struct {
	Memory, Pods          [6]uint64
	CPU, Swap             uint64
	FsUsed, FsInodes, Fs  uint64
	ImageUsed, Image      uint64
	PodMemory             map[string][6]uint64
	Available, PodsLimits bool // whether these numbers exist
}

func memoryNumbers(m *statsapi.MemoryStats) [6]uint64 {
	return [6]uint64{
		valueOf(m.AvailableBytes), valueOf(m.UsageBytes), valueOf(m.WorkingSetBytes), valueOf(m.RSSBytes), valueOf(m.PageFaults), valueOf(m.MajorPageFaults),
	}
}

func nodeOf(s *statsapi.Summary) nodeNumbers {
	n := nodeNumbers{
		Memory: memoryNumbers(s.Node.Memory), CPU: valueOf(s.Node.CPU.UsageCoreNanoSeconds), Swap: valueOf(s.Node.Swap.SwapUsageBytes),
		FsUsed: valueOf(s.Node.Fs.UsedBytes), FsInodes: valueOf(s.Node.Fs.InodesUsed), Fs: valueOf(s.Node.Fs.CapacityBytes),
		ImageUsed: valueOf(s.Node.Runtime.ImageFs.UsedBytes), Image: valueOf(s.Node.Runtime.ImageFs.CapacityBytes),
		PodMemory: map[string][6]uint64{}, Available: s.Node.Memory.AvailableBytes != nil,
	}
	for _, c := range s.Node.SystemContainers {
		if c.Name == statsapi.SystemContainerPods {
			n.Pods, n.PodsLimits = memoryNumbers(c.Memory), c.Memory.AvailableBytes != nil
		}
	}
	for _, p := range s.Pods {
		n.PodMemory[p.PodRef.UID] = memoryNumbers(p.Memory)
	}
	return n
}

func makeMemory(c *conformance.Choices) *measuredMemory {
	limit := func() int64 {
		if c.OneIn(2) {
			return cgroups.Unlimited
		}
		return int64(c.Uint64() >> 20)
	}
	used := c.Uint64() >> 24
	return &measuredMemory{
		CPU: c.Uint64() >> 8, Current: used, InactiveFile: conformance.Pick(c, used/2, 0, used, used+1, c.Uint64()>>24), Anon: used / 3,
		Faults: c.Uint64() >> 8, MajorFaults: c.Uint64() >> 8, Swap: c.Uint64() >> 24, Max: limit(), SwapMax: limit(),
	}
}

func working(m *measuredMemory) uint64 { return m.Current - min(m.Current, m.InactiveFile) }

// overLimit reports whether the usage of a cgroup exceeds its limit.
func overLimit(h *house) bool {
	for _, m := range append([]*measuredMemory{h.Pods}, cgroupsOf(h)...) {
		if m.Max >= 0 && working(m) > uint64(m.Max) {
			return true
		}
	}
	return working(h.Root) > h.MemTotal<<10
}

func cgroupsOf(h *house) (all []*measuredMemory) {
	for _, s := range h.Sandboxes {
		if s.Cgroup != nil {
			all = append(all, s.Cgroup)
		}
	}
	return all
}

func makeSummaryNode(c *conformance.Choices) *house {
	h := makeHouse(c)
	h.MemTotal, h.HugePages = 1+c.Uint64()>>30, conformance.Pick[uint64](c, 0, 2048, 1<<20)
	h.Root, h.Pods = makeMemory(c), makeMemory(c)
	for i := range h.Sandboxes {
		h.Sandboxes[i].Cgroup = makeMemory(c)
	}
	return h
}

var summaryNode = conformance.Comparison[*house, nodeNumbers]{
	Make: makeSummaryNode,
	Kubelet: func(h *house) nodeNumbers {
		s, err := serverstats.NewSummaryProvider(context.Background(), newKubeletSummary(h)).Get(context.Background(), false)
		if err != nil {
			panic(err)
		}
		return nodeOf(s)
	},
	Ours: func(h *house) nodeNumbers {
		s, err := h.collector(ourCgroups{h}).Summary(context.Background())
		if err != nil {
			panic(err)
		}
		return nodeOf(s)
	},
	Exceptions: []conformance.Exception[*house, nodeNumbers]{{
		Name:   "over the limit",
		Reason: "no memory is available; the kubelet's difference wraps around",
		When:   overLimit,
	}},
}

func TestSummary(t *testing.T) {
	host(true)
	t.Run("a source fails", func(t *testing.T) {
		h := makeSummaryNode(conformance.NewChoices(conformance.RandomBytes(1, 1)))
		h.broken = true
		_, err := serverstats.NewSummaryProvider(t.Context(), newKubeletSummary(h)).Get(t.Context(), false)
		if err == nil {
			t.Error("the kubelet returns a summary despite the error")
		}
		s, err := h.collector(ourCgroups{h}).Summary(t.Context())
		if err == nil || err.Error() != "runtime image usage: broken" {
			t.Errorf("error %v", err)
		}
		if s.Node.Memory.AvailableBytes == nil || s.Node.Runtime.ImageFs != nil {
			t.Error("the summary must have all numbers except those of images")
		}
	})
}
