// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// A manifest with many init containers, which all reuse the same memory, delays no other pod for long: each of its containers costs about the same.
func TestReserveManyInitContainers(t *testing.T) {
	policy := newPolicy(t, []topology.Node{{Memory: 1 << 30}})
	a, err := numa.NewAllocator(policy, numa.AllocatorOptions{})
	require.NoError(t, err)
	pod := &numa.Pod{UID: "pod", Guaranteed: true}
	for i := range 1000 { // the limit of package podapi
		pod.Containers = append(pod.Containers, numa.Container{Name: fmt.Sprint("c", i), Requests: map[string]uint64{numa.Memory: 1}, Kind: device.Init})
	}
	r, err := a.Begin(pod)
	require.NoError(t, err)
	began := time.Now()
	for i := range pod.Containers {
		require.Len(t, r.Hints(i), 1)
		require.NoError(t, r.Take(device.Hint{}))
	}
	require.NoError(t, r.Commit())
	require.Less(t, time.Since(began), 30*time.Second, "minutes if each container copies the blocks of the ones before")
	require.EqualValues(t, 1, policy.Nodes(a.State())[0].Memory[numa.Memory].Reserved, "all containers use the same byte")
}
