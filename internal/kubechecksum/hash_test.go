// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubechecksum_test

import (
	"hash/fnv"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/kubechecksum"
)

// A hash of maps and lists is the FNV-32a hash of their dump.
func TestHash(t *testing.T) {
	h := kubechecksum.New()
	write := func(text string) { h.Write(text) }
	h.Write("(T){A:", "")
	kubechecksum.WriteMap(h, map[int]string{10: "x", 9: "y"}, strconv.Itoa, write)
	h.Write(" B:")
	kubechecksum.WriteMap(h, map[string]string{}, strconv.Quote, write)
	h.Write(" C:")
	kubechecksum.WriteMap(h, map[string]string(nil), strconv.Quote, write)
	h.Write(" D:")
	kubechecksum.WriteList(h, []string{"b", "a"}, write)
	h.Write(" E:")
	kubechecksum.WriteList(h, []string{}, write)
	h.Write(" F:")
	kubechecksum.WriteList(h, nil, write)
	h.Write("}")

	want := fnv.New32a()
	_, _ = want.Write([]byte("(T){A:map[9:y 10:x] B:map[] C:<nil> D:[b a] E:[] F:<nil>}"))
	require.Equal(t, uint64(want.Sum32()), h.Sum())
}
