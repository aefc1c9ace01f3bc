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
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

func TestResizeOfCPURequestIsInfeasible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "1 socket 1 node 4 cores")
		defer n.start()()
		pod := newPod("pod", "1500m")
		n.run(pod)
		require.NoError(t, n.placed.AdmitResize(pod))
		rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.AdmitResize(newPod("pod", "2")))
		require.True(t, ok)
		assert.Equal(t, podstatus.Rejection{Reason: "Infeasible", Message: `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`}, *rejection)
	})
}

func TestResizeOfMemoryRequestIsInfeasible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.config = cpus.Config{}
		defer n.start()()
		n.run(newMemoryPod("pod", "500m", "100Mi"))
		require.NoError(t, n.placed.AdmitResize(newMemoryPod("pod", "600m", "100Mi")))
		rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.AdmitResize(newMemoryPod("pod", "500m", "200Mi")))
		require.True(t, ok)
		assert.Equal(t, podstatus.Rejection{Reason: "Infeasible", Message: `Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"`}, *rejection)
	})
}

// With the gates of in-place resizes, a pod keeps its CPUs and its memory in a resize, and also after a restart, when its requests differ from what it has.
func TestResizedPodKeepsItsCPUsAndMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(t)
		n.resizes, n.policy, n.config.Topology = true, device.SingleNUMANode, device.SingleNUMANode
		stop := n.start()
		pod, resized := newMemoryPod("pod", "2", "300Mi"), newMemoryPod("pod", "3", "800Mi")
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(pod))
		require.NoError(t, n.placed.AdmitResize(resized))
		assert.Equal(t, []int64{1, 2}, n.placed.CPUs("pod", "a"))
		stop()

		defer n.start()()
		assert.Equal(t, map[string]string{"a": "1-2"}, n.run(resized))
		assert.Equal(t, "0", n.mems["pod/a"])
		assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 300 << 20}}, n.placed.Memory("pod", "a"))
	})
}
