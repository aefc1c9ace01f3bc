// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubechecksum computes the checksums in the kubelet's checkpoint files: FNV-32a of a dump of the data in the format of go-spew, with the names
// of the kubelet's types. The caller writes the names; this package writes maps and lists. Source: pkg/kubelet/checkpointmanager/checksum,
// pkg/util/hash, k8s.io/utils/dump.
package kubechecksum

import (
	"bufio"
	"cmp"
	"hash"
	"hash/fnv"
	"maps"
	"slices"
)

// Hash computes the checksum of a dump. Create it with [New].
type Hash struct {
	sum    hash.Hash32
	buffer *bufio.Writer // FNV-32a is slow on many short texts
}

// New returns the hash of an empty dump.
func New() *Hash {
	sum := fnv.New32a()
	return &Hash{sum: sum, buffer: bufio.NewWriter(sum)}
}

// Write adds texts to the dump.
func (h *Hash) Write(texts ...string) {
	for _, text := range texts {
		_, _ = h.buffer.WriteString(text) // a hash never fails
	}
}

// Sum returns the checksum of the dump.
func (h *Hash) Sum() uint64 {
	_ = h.buffer.Flush()
	return uint64(h.sum.Sum32())
}

// WriteMap adds a map to the dump, with its keys in ascending order. It calls key for the text of each key, and value to write each value. A nil map is
// written as <nil>, an empty one as map[].
func WriteMap[K cmp.Ordered, V any](h *Hash, m map[K]V, key func(K) string, value func(V)) {
	if m == nil {
		h.Write("<nil>")
		return
	}
	h.Write("map[")
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			h.Write(" ")
		}
		h.Write(key(k), ":")
		value(m[k])
	}
	h.Write("]")
}

// WriteList adds a list to the dump, and calls value to write each element. A nil list is written as <nil>, an empty one as [].
func WriteList[E any](h *Hash, list []E, value func(E)) {
	if list == nil {
		h.Write("<nil>")
		return
	}
	h.Write("[")
	for i, element := range list {
		if i > 0 {
			h.Write(" ")
		}
		value(element)
	}
	h.Write("]")
}
