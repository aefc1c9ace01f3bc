// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// maxManifestContainers is the largest number of init containers that package podapi permits.
const maxManifestContainers = 1000

// A manifest with many init containers, which all reuse one CPU, delays no other pod for long: each of its containers costs about the same.
func TestReserveManyInitContainers(t *testing.T) {
	machine, err := topology.Parse("1 socket 1 node 4 cores")
	require.NoError(t, err)
	policy, err := cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
	require.NoError(t, err)
	a, err := cpus.NewAllocator(policy, cpus.AllocatorOptions{})
	require.NoError(t, err)
	pod := &cpus.Pod{UID: "pod", Guaranteed: true}
	for i := range maxManifestContainers {
		pod.Containers = append(pod.Containers, cpus.Container{Name: fmt.Sprint("c", i), Millis: 1000, Kind: device.Init})
	}
	began := time.Now()
	require.NoError(t, a.Reserve(pod, nil))
	require.Less(t, time.Since(began), 30*time.Second, "three minutes without race detector if each container replays the ones before")
	require.Len(t, a.State().Assigned["pod"], maxManifestContainers)
	require.Equal(t, "0,2-3", a.State().Shared.String())
}
