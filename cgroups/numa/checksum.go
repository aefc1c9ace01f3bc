// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"strconv"

	"github.com/seed81659283/nodeagent/internal/kubechecksum"
)

// checksum returns the kubelet's checksum of version 2 or, without podEntries, of version 1. Source: MarshalCheckpoint in
// pkg/kubelet/cm/memorymanager/state/checkpoint.go.
func (c *checkpointV2) checksum(podEntries bool) uint64 {
	h := kubechecksum.New()
	text := func(s string) string { return s }
	blocks := func(list []checkpointBlock) { kubechecksum.WriteList(h, list, func(b checkpointBlock) { b.hash(h) }) }
	h.Write("(*state.MemoryManagerCheckpoint){PolicyName:(string)", c.PolicyName, " MachineState:(state.NUMANodeMap)")
	kubechecksum.WriteMap(h, c.MachineState, strconv.Itoa, func(n *checkpointNode) { n.hash(h) })
	h.Write(" Entries:(state.ContainerMemoryAssignments)")
	kubechecksum.WriteMap(h, c.Entries, text, func(containers map[string][]checkpointBlock) {
		kubechecksum.WriteMap(h, containers, text, blocks)
	})
	if podEntries {
		h.Write(" PodEntries:(state.PodMemoryAssignments)")
		kubechecksum.WriteMap(h, c.PodEntries, text, func(pod checkpointPod) {
			h.Write("{MemoryBlocks:([]state.Block)")
			blocks(pod.Blocks)
			h.Write("}")
		})
	}
	h.Write(" Checksum:(checksum.Checksum)0}")
	return h.Sum()
}

// hash adds a NUMA node to the dump.
func (n *checkpointNode) hash(h *kubechecksum.Hash) {
	if n == nil {
		h.Write("<nil>")
		return
	}
	h.Write("<*>{NumberOfAssignments:(int)", strconv.Itoa(n.Assignments), " MemoryMap:(map[v1.ResourceName]*state.MemoryTable)")
	kubechecksum.WriteMap(h, n.Memory, func(name string) string { return name }, func(t *checkpointTable) {
		if t == nil {
			h.Write("<nil>")
			return
		}
		h.Write("<*>{TotalMemSize:(uint64)", format64(t.Total), " SystemReserved:(uint64)", format64(t.SystemReserved), " Allocatable:(uint64)", format64(t.Allocatable),
			" Reserved:(uint64)", format64(t.Reserved), " Free:(uint64)", format64(t.Free), "}")
	})
	h.Write(" Cells:([]int)")
	hashIDs(h, n.Cells)
	h.Write("}")
}

// hash adds a block to the dump.
func (b *checkpointBlock) hash(h *kubechecksum.Hash) {
	h.Write("{NUMAAffinity:([]int)")
	hashIDs(h, b.Nodes)
	h.Write(" Type:(v1.ResourceName)", b.Type, " Size:(uint64)", format64(b.Size), "}")
}

// hashIDs adds the IDs of NUMA nodes to the dump.
func hashIDs(h *kubechecksum.Hash, ids []int) {
	kubechecksum.WriteList(h, ids, func(id int) { h.Write(strconv.Itoa(id)) })
}

func format64(n uint64) string { return strconv.FormatUint(n, 10) }
