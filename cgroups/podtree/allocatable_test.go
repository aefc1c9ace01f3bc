// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
)

// equalLists compares lists of quantities by value.
func equalLists(t *testing.T, want, got corev1.ResourceList) {
	t.Helper()
	assert.Len(t, got, len(want))
	for name, q := range want {
		have, ok := got[name]
		assert.True(t, ok, "%s is missing", name)
		assert.Zero(t, q.Cmp(have), "%s: want %s, have %s", name, &q, &have)
	}
}

func keepFree(t *testing.T, s string) podtree.EvictionReserve {
	t.Helper()
	percent, isPercent := strings.CutSuffix(s, "%")
	switch {
	case s == "":
		return podtree.EvictionReserve{}
	case !isPercent:
		return podtree.EvictionReserve{Quantity: resource.MustParse(s)}
	}
	f, err := strconv.ParseFloat(percent, 32)
	require.NoError(t, err)
	return podtree.EvictionReserve{Fraction: float32(f) / 100}
}

func TestReservationAllocatableAndForPods(t *testing.T) {
	for _, tc := range []struct {
		name                     string
		capacity, system, kube   corev1.ResourceList
		memory, nodefs           string
		want, allocatable, limit corev1.ResourceList
	}{
		{
			name:     "system and kube reservations add up",
			capacity: list("cpu", "10", "memory", "10Gi"),
			system:   list("cpu", "50m", "memory", "50Mi"), kube: list("cpu", "100m", "memory", "100Mi"),
			want:        list("cpu", "150m", "memory", "150Mi"),
			allocatable: list("cpu", "9850m", "memory", "10090Mi"),
			limit:       list("cpu", "9850m", "memory", "10090Mi"),
		},
		{
			name:     "hard eviction threshold reduces allocatable, but not the limit of pods",
			capacity: list("cpu", "10", "memory", "10Gi"),
			system:   list("memory", "50Mi"), kube: list("memory", "100Mi"), memory: "100Mi",
			want:        list("memory", "250Mi"),
			allocatable: list("cpu", "10", "memory", "9990Mi"),
			limit:       list("cpu", "10", "memory", "10090Mi"),
		},
		{
			name:     "a percentage has the precision of the kubelet",
			capacity: list("memory", "10Gi"), system: list("memory", "50Mi"), kube: list("memory", "100Mi"), memory: "5%",
			want:        list("memory", "694157320"),
			allocatable: list("memory", "10043260920"),
			limit:       list("memory", "10090Mi"),
		},
		{
			name:     "nodefs.available is ephemeral storage",
			capacity: list("ephemeral-storage", "10Gi"), kube: list("ephemeral-storage", "100Mi"), nodefs: "100Mi",
			want:        list("ephemeral-storage", "200Mi"),
			allocatable: list("ephemeral-storage", "10040Mi"),
			limit:       list("ephemeral-storage", "10140Mi"),
		},
		{
			name:     "resources missing in capacity are not reserved",
			capacity: list("cpu", "10"), system: list("memory", "1Gi"), memory: "100Mi",
			want: list(), allocatable: list("cpu", "10"), limit: list("cpu", "10"),
		},
		{
			name:     "reservation above capacity gives zero",
			capacity: list("memory", "1Gi"), system: list("memory", "2Gi"),
			want: list("memory", "2Gi"), allocatable: list("memory", "0"), limit: list("memory", "0"),
		},
		{
			name:     "sums beyond 64 bits",
			capacity: list("memory", "10000000000000000000001"), system: list("memory", "1"), kube: list("memory", "1"),
			want:        list("memory", "2"),
			allocatable: list("memory", "9999999999999999999999"),
			limit:       list("memory", "9999999999999999999999"),
		},
		{
			name:        "huge pages reduce allocatable memory",
			capacity:    list("memory", "10Gi", "hugepages-2Mi", "1Gi"),
			want:        list(),
			allocatable: list("memory", "9Gi", "hugepages-2Mi", "1Gi"),
			limit:       list("memory", "10Gi", "hugepages-2Mi", "1Gi"),
		},
		{
			name:        "more huge pages than memory give zero memory",
			capacity:    list("memory", "1Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "1Gi"),
			want:        list(),
			allocatable: list("memory", "0", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "1Gi"),
			limit:       list("memory", "1Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "1Gi"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := podtree.Reserved{
				System: tc.system, Kube: tc.kube,
				MemoryAvailable: keepFree(t, tc.memory), NodeFSAvailable: keepFree(t, tc.nodefs),
			}
			before := tc.capacity.DeepCopy()
			equalLists(t, tc.want, r.Reservation(tc.capacity))
			equalLists(t, tc.allocatable, r.Allocatable(tc.capacity))
			equalLists(t, tc.limit, r.ForPods(tc.capacity))
			equalLists(t, before, tc.capacity) // the argument is not modified
		})
	}
}

func TestReservedValidateNamesEachExcess(t *testing.T) {
	capacity := list("cpu", "2", "memory", "10Gi", "pid", "1000", "hugepages-2Mi", "1Gi")
	for _, tc := range []struct {
		name string
		r    podtree.Reserved
		want string // empty: valid
	}{
		{"no reservation", podtree.Reserved{}, ""},
		{"reservation of the whole capacity", podtree.Reserved{System: list("cpu", "1"), Kube: list("cpu", "1", "memory", "10Gi")}, ""},
		{
			"reservation above capacity",
			podtree.Reserved{System: list("memory", "10Gi"), MemoryAvailable: keepFree(t, "100Mi")},
			"reserve memory 10340Mi: the node has 10Gi",
		},
		{
			"two resources above capacity",
			podtree.Reserved{System: list("memory", "11Gi", "cpu", "3")},
			"reserve cpu 3: the node has 2\nreserve memory 11Gi: the node has 10Gi",
		},
		{"negative quantity", podtree.Reserved{Kube: list("cpu", "-1")}, "reserve cpu -1: the quantity is negative"},
		{
			"resource that cannot be reserved",
			podtree.Reserved{Kube: list("hugepages-2Mi", "2Mi")},
			"reserve hugepages-2Mi 2Mi: only cpu, memory, ephemeral-storage and pid can be reserved",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.r.Validate(capacity)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tc.want)
		})
	}
}

func TestParseReserved(t *testing.T) {
	got, err := podtree.ParseReserved(map[string]string{
		"cpu": "1500500u", "memory": "200Mi", "ephemeral-storage": "1Gi", "pid": "1000",
	})
	require.NoError(t, err)
	equalLists(t, list("cpu", "1501m", "memory", "200Mi", "ephemeral-storage", "1Gi", "pid", "1000"), got)

	for _, tc := range []struct{ key, value, want string }{
		{"cpu", "x", `reserve cpu "x": `},
		{"cpu", "-1", "reserve cpu -1: the quantity is negative"},
		{"nvidia.com/gpu", "1", "reserve nvidia.com/gpu 1: only cpu, memory"},
	} {
		_, err := podtree.ParseReserved(map[string]string{tc.key: tc.value})
		require.ErrorContains(t, err, tc.want)
	}
}

func TestParseQOSReserved(t *testing.T) {
	for _, tc := range []struct {
		in   map[string]string
		want int64
	}{{map[string]string{"memory": "50%"}, 50}, {map[string]string{"memory": "0%"}, 0}, {map[string]string{"memory": "100%"}, 100}} {
		got, err := podtree.ParseQOSReserved(tc.in)
		require.NoError(t, err)
		require.Equal(t, &tc.want, got)
	}
	got, err := podtree.ParseQOSReserved(nil)
	require.NoError(t, err)
	require.Nil(t, got)
	for _, m := range []map[string]string{
		{"memory": "101%"}, {"memory": "-1%"}, {"memory": "50"}, {"memory": "5.5%"}, {"memory": "%"}, {"cpu": "50%"},
	} {
		_, err := podtree.ParseQOSReserved(m)
		require.ErrorContains(t, err, "qosReserved ")
	}
}

func TestMaxPIDs(t *testing.T) {
	proc := func(pid, threads string) fstest.MapFS {
		return fstest.MapFS{
			"sys/kernel/pid_max": {Data: []byte(pid)}, "sys/kernel/threads-max": {Data: []byte(threads)},
		}
	}
	n, err := podtree.MaxPIDs(proc("32768\n", "15000\n"))
	require.NoError(t, err)
	require.EqualValues(t, 15000, n)
	n, err = podtree.MaxPIDs(proc("32768\n", "4194304\n"))
	require.NoError(t, err)
	require.EqualValues(t, 32768, n)
	_, err = podtree.MaxPIDs(proc("32768\n", "many\n"))
	require.EqualError(t, err, `read sys/kernel/threads-max: "many\n" is not a positive number`)
	_, err = podtree.MaxPIDs(fstest.MapFS{})
	require.ErrorContains(t, err, "sys/kernel/pid_max")
}
