// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// FuzzHash compares the hash, which allocates nothing, with the hash of the printed bytes.
func FuzzHash(f *testing.F) {
	f.Add("test_container", "foo/image:v1")
	f.Add("", "")
	f.Add("a\"b\\c", "<x>&\u2028\xff\x00\x7f")
	f.Fuzz(func(t *testing.T, name, image string) {
		c := &corev1.Container{Name: name, Image: image}
		text, err := json.Marshal(map[string]string{"name": name, "image": image})
		require.NoError(t, err)
		h := fnv.New32a()
		fmt.Fprintf(h, "([]uint8)%v", text)
		want := strconv.FormatUint(uint64(h.Sum32()), 16)
		require.Equal(t, want, Hash(c))
		require.True(t, HasHash(c, want))
		require.False(t, HasHash(c, want+"0"))
		require.False(t, HasHash(c, ""))
	})
}

func TestHashAllocatesNothing(t *testing.T) {
	c := &corev1.Container{Name: "test_container", Image: "foo/image:v1"}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if !HasHash(c, "8e45cbd0") {
			t.Error("the hash of the kubelet's own tests")
		}
	}))
}
