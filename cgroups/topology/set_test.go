// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package topology_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/topology"
)

func TestParseCPUSetAcceptsTheListsOfTheKernel(t *testing.T) {
	for text, want := range map[string][]int{
		"": nil, "0": {0}, "0-3": {0, 1, 2, 3}, "1-1": {1}, "0,2-3,63-65": {0, 2, 3, 63, 64, 65}, "3,1": {1, 3}, "0-1,1-2": {0, 1, 2}, "2047": {2047},
	} {
		set, err := topology.ParseCPUSet(text)
		require.NoError(t, err, text)
		require.Equal(t, want, slices.Collect(set.All()), text)
		require.Equal(t, topology.NewCPUSet(want...), set, text)
	}
}

func TestParseCPUSetNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"3-1":      `CPU list "3-1": range 3-1 ends before its start`,
		"0, 1":     `CPU list "0, 1": " 1" is no ID`,
		"0,":       `CPU list "0,": "" is no ID`,
		"0-":       `CPU list "0-": "" is no ID`,
		"-1":       `CPU list "-1": "" is no ID`,
		"a":        `CPU list "a": "a" is no ID`,
		"2048":     `CPU list "2048": ID 2048 is not below 2048`,
		"0-999999": `CPU list "0-999999": ID 999999 is not below 2048`,
	} {
		_, err := topology.ParseCPUSet(text)
		require.EqualError(t, err, want)
	}
	_, err := topology.ParseCPUSet(strings.Repeat("0,", 1<<20))
	require.Less(t, len(err.Error()), 200)
}

func TestEmptySetHasNeitherLowestNorHighest(t *testing.T) {
	var set topology.CPUSet
	require.Equal(t, "", set.String())
	require.Equal(t, -1, set.Lowest())
	require.Equal(t, -1, set.Highest())
	require.False(t, set.Has(-1) || set.Has(topology.MaxCPUs))
}

// Text and set are the same, whatever is in the set.
func FuzzParseCPUSet(f *testing.F) {
	f.Add("0-3,8,62-66")
	f.Fuzz(func(t *testing.T, text string) {
		set, err := topology.ParseCPUSet(text)
		if err != nil {
			return
		}
		again, err := topology.ParseCPUSet(set.String())
		require.NoError(t, err)
		require.Equal(t, set, again)
		encoded, err := json.Marshal(set)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(encoded, &again))
		require.Equal(t, set, again)
		ids := slices.Collect(set.All())
		require.Len(t, ids, set.Len())
		require.True(t, slices.IsSorted(ids))
		for _, id := range ids {
			require.True(t, set.Has(id))
		}
		half := topology.NewCPUSet(ids[:len(ids)/2]...)
		rest := set.Minus(half)
		require.Equal(t, set, half.Union(rest))
		require.Zero(t, half.CountCommon(rest))
	})
}
