// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sorted rows have the same content as a map, even if a key is listed twice.
func TestRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	list := func() (rows[int], map[string]row[int]) {
		var listed rows[int]
		want := map[string]row[int]{}
		for range random.IntN(40) {
			namespace := []string{"a", "a-b", "a0", "b", ""}[random.IntN(5)]
			key := Key(namespace, fmt.Sprint("x", random.IntN(12)))
			r := row[int]{key: key, version: fmt.Sprint(random.IntN(3)), value: random.Int()}
			listed = append(listed, r)
			want[key] = r
		}
		return listed.sortRows(), want
	}

	for range 500 {
		before, beforeWant := list()
		after, want := list()
		require.Len(t, after, len(want))
		require.True(t, slices.IsSortedFunc(after, func(a, b row[int]) int { return strings.Compare(a.key, b.key) }))
		for key, r := range want {
			at, ok := after.findRow(key)
			require.True(t, ok, key)
			require.Equal(t, r, after[at])
		}
		_, ok := after.findRow("a/none")
		require.False(t, ok)
		for _, namespace := range []string{"a", "a-b", "b", "none"} {
			inside := 0
			for key := range want {
				if strings.HasPrefix(key, namespace+"/") {
					inside++
				}
			}
			require.Len(t, after.inNamespace(namespace), inside)
		}
		require.Len(t, after.inNamespace(""), len(want))

		var changed []string
		for key, r := range want {
			if was, known := beforeWant[key]; !known || was.version != r.version {
				changed = append(changed, key)
			}
		}
		for key := range beforeWant {
			if _, still := want[key]; !still {
				changed = append(changed, key)
			}
		}
		require.ElementsMatch(t, changed, before.changedKeys(after))
	}
}
