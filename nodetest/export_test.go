// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"reflect"
	"time"

	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// EventCount returns the number of events that a Loop has scheduled.
func EventCount(l *Loop) uint64 { return l.queue.added }

// SetPackAfter changes how long a node of the Fleet is idle until its memory is packed. A negative duration: it is never packed.
func SetPackAfter(f *Fleet, d time.Duration) { f.packAfter = d }

// PackedNodes returns the number of nodes whose memory is packed, and their size in bytes.
func PackedNodes(f *Fleet) (nodes, size int) {
	for _, n := range f.nodes {
		n.mu.Lock()
		if n.image != nil {
			nodes++
			size += n.image.Size()
			if n.report != nil {
				size += n.report.Size()
			}
		}
		n.mu.Unlock()
	}
	return nodes, size
}

// RepackNodes packs and unpacks each node of the Fleet that can be packed. It calls compare with copies of the packed variables from before, and the
// variables; describe describes the machine. It returns the number of these nodes.
func RepackNodes(f *Fleet, describe func(*machine.Machine) string, compare func(before, after any)) (count int, err error) {
	for _, n := range f.nodes {
		n.mu.Lock()
		if n.image == nil && n.isPackable() {
			variables, before := append(n.listPackedReport(), n.listPacked()...), []any{describe(n.loop.kernel.machine)}
			for _, v := range variables[:len(variables)-1] { // the last is the machine
				copied := reflect.New(reflect.TypeOf(v).Elem())
				copied.Elem().Set(reflect.ValueOf(v).Elem())
				before = append(before, copied.Interface())
			}
			if n.image, err = f.packer.Pack(n.listPacked()...); err == nil {
				n.report, err = f.packer.Pack(n.listPackedReport()...)
				f.settled.recordPack(false)
				n.unpack()
				count++
				for i, after := range append([]any{describe(n.loop.kernel.machine)}, variables[:len(variables)-1]...) {
					compare(before[i], after)
				}
			}
		}
		n.mu.Unlock()
	}
	return count, err
}
