// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/device"
)

// everyNUMA compares all requested inputs; each has some sixty calls of both sides.
var everyNUMA = flag.Bool("numa", false, "give TestNUMAMemory as many inputs as -inputs says")

func TestNUMAMemory(t *testing.T) {
	limit := flags.AtMost(20_000)
	if *everyNUMA {
		limit = flags
	}
	numaMemory.Run(t, limit)
}

// Pods with pod-level resources, with the gate PodLevelResourceManagers, have the same memory.
func TestPodLevelMemory(t *testing.T) {
	setPodLevelGate(t)
	limit := flags.AtMost(20_000)
	if *everyNUMA {
		limit = flags
	}
	podLevelMemory.Run(t, limit)
}

func FuzzPodLevelMemory(f *testing.F) {
	setPodLevelGate(f)
	fuzz(f, podLevelMemory)
}

// podLevelMemory does not admit a pod again that has memory as a whole: the kubelet would allocate a second time.
var podLevelMemory = conformance.Comparison[numaInput, []numaStep]{
	Make: makePodLevelNUMAInput, Kubelet: numaMemory.Kubelet, Ours: numaMemory.Ours, Exceptions: numaMemory.Exceptions,
}

func FuzzNUMAMemory(f *testing.F) { fuzz(f, numaMemory) }

// numaMemory compares hints, nodes, blocks and errors of sequences of admissions, starts of containers, removals and restarts.
var numaMemory = conformance.Comparison[numaInput, []numaStep]{
	Make:    makeNUMAInput,
	Kubelet: func(in numaInput) []numaStep { return in.play(newKubeletMemory(&in)) },
	Ours:    func(in numaInput) []numaStep { return in.play(newOurMemory(&in)) },
	Exceptions: []conformance.Exception[numaInput, []numaStep]{
		{
			Name: "unknown huge pages", Reason: "a huge page size that a NUMA node lacks has no bytes there; the kubelet panics for such a pod, and if it restarts with a group of such nodes",
			When: func(in numaInput) bool {
				return in.hasUnknownPages()
			},
		},
		{
			Name: "huge pages alone", Reason: "a container of a Guaranteed pod that requests huge pages and no memory has them; the kubelet panics, and an API server refuses such a pod",
			When: func(in numaInput) bool {
				return slices.ContainsFunc(in.Pods, func(pod numa.Pod) bool {
					return slices.ContainsFunc(pod.Containers, func(c numa.Container) bool {
						_, ok := c.Requests[numa.Memory]
						return !ok && len(c.Requests) > 0
					})
				})
			},
		},
		{
			Name: "below zero", Reason: "a node that reserves more memory than it has leaves nothing to containers; in the kubelet, the number wraps around",
			When: func(in numaInput) bool {
				for _, n := range newOurMemory(&in).nodes() {
					if a := n.Memory[numa.Memory]; a.Allocatable == 0 {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "mixed nodes", Reason: "after a topology policy has put a container on one node of a group, the blocks tell what is in use; the kubelet loses memory",
			When: func(in numaInput) bool {
				o := newOurMemory(&in)
				in.play(o)
				return o.mixed
			},
		},
		{
			Name: "killed while it admits", Reason: "memory of init containers that a later container uses is not taken again after a restart",
			When: func(in numaInput) bool { return in.has(numaCrash) },
		},
		{
			Name: "sidecar between init containers", Reason: "memory that is allocated again after a restart is counted once, also if a sidecar holds memory; the kubelet counts some of it twice",
			When: func(in numaInput) bool {
				return in.has(numaStart) && (in.has(numaRestart) || in.has(numaCrash)) && slices.ContainsFunc(in.Pods, hasSidecarBetween)
			},
		},
		{
			Name: "init containers", Reason: "init containers keep their memory until the pod is over, so that a restart does not refuse it",
			When: func(in numaInput) bool { return !in.Kubelet.FreeInit && in.has(numaStart) },
		},
		{
			Name: "changed memory", Reason: "a changed amount of memory is no error",
			When: func(in numaInput) bool {
				return !in.Kubelet.RefuseChanged && slices.ContainsFunc(in.Ops, func(op numaOp) bool { return op.Changed > 0 })
			},
		},
	},
}

// has reports whether in has an operation.
func (in *numaInput) has(op int) bool {
	return slices.ContainsFunc(in.Ops, func(o numaOp) bool { return o.Op == op })
}

// hasDifferentPages reports whether the nodes have huge pages of different sizes.
func (in *numaInput) hasDifferentPages() bool {
	return slices.ContainsFunc(in.Machine.Nodes, func(n topology.Node) bool { return len(n.HugePages) != len(in.Machine.Nodes[0].HugePages) })
}

// hasType reports whether all nodes have a type of memory.
func (in *numaInput) hasType(name string) bool {
	for _, n := range newOurMemory(in).nodes() {
		if _, ok := n.Memory[name]; !ok {
			return false
		}
	}
	return true
}

// hasSidecarBetween reports whether a pod has a sidecar after an init container and before another one.
func hasSidecarBetween(pod numa.Pod) bool {
	kinds := ""
	for _, c := range pod.Containers {
		kinds += map[device.ContainerKind]string{device.Init: "i", device.Sidecar: "s"}[c.Kind]
	}
	return strings.Contains(kinds, "is") && strings.LastIndex(kinds, "i") > strings.Index(kinds, "is")
}

// hasUnknownPages reports whether NUMA nodes have different sizes of huge pages, or a container requests a type of memory that a node lacks.
func (in *numaInput) hasUnknownPages() bool {
	return in.hasDifferentPages() || slices.ContainsFunc(in.Pods, func(pod numa.Pod) bool {
		return slices.ContainsFunc(pod.Containers, func(c numa.Container) bool {
			for name := range c.Requests {
				if !in.hasType(name) {
					return true
				}
			}
			return false
		})
	})
}
