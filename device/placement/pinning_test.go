// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestPinningIsReportedForEachContainerThatNeedsCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores 2 threads 2 caches")
		n.config.Options = map[string]string{"full-pcpus-only": "true"}
		stop := n.start()
		n.run(newPod("shared", "500m"))
		require.Empty(t, n.pinned)
		pod := newPod("pod", "2", "500m", "4")
		n.run(pod)
		require.Equal(t, []cpus.Pinning{
			{PodUID: "pod", Container: "a", Taken: topology.NewCPUSet(1, 5), WholeCores: true, OneCache: true},
			{PodUID: "pod", Container: "c", Taken: topology.NewCPUSet(2, 3, 6, 7), WholeCores: true, OneCache: true},
		}, n.pinned)
		require.NoError(t, n.placed.Reserve(t.Context(), pod))
		require.Len(t, n.pinned, 2, "a later start of its containers")
		assert.Equal(t, cpus.Usage{Free: 1, Exclusive: 6, Nodes: map[int]int{0: 6}}, n.placed.CPUUsage(), "of CPUs 0 and 4, one is reserved")

		stop()
		defer n.start()()
		n.pinned = nil
		n.run(pod)
		require.Equal(t, []cpus.Pinning{{PodUID: "pod", Container: "a", WholeCores: true}, {PodUID: "pod", Container: "c", WholeCores: true}}, n.pinned, "the pod kept its CPUs")
		require.NoError(t, n.placed.Release(t.Context(), "pod"))
		assert.Equal(t, cpus.Usage{Free: 7, Nodes: map[int]int{0: 0}}, n.placed.CPUUsage())
	})
}

func TestPinningOfRejectedPodEndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		_, ok := errors.AsType[*podstatus.Rejection](n.placed.Reserve(t.Context(), newPod("pod", "1", "3", "1")))
		require.True(t, ok)
		require.Len(t, n.pinned, 2, "the container after the rejected one is not tried")
		assert.NoError(t, n.pinned[0].Err)
		refusal, ok := errors.AsType[*device.Refusal](n.pinned[1].Err)
		require.True(t, ok)
		assert.Equal(t, "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2, which is unexpected", refusal.Message)
	})
}
