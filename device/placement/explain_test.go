// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/devicetest"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// rejectUnaligned returns the explanation of the rejection of a pod, whose reason must be that of the topology policy.
func (n *node) rejectUnaligned(pod *corev1.Pod) string {
	rejection, ok := errors.AsType[*podstatus.Rejection](n.placed.Reserve(n.t.Context(), pod))
	require.True(n.t, ok)
	require.Equal(n.t, device.ReasonTopologyAffinityError, rejection.Reason)
	require.Equal(n.t, "Resources cannot be allocated with Topology locality", rejection.Message)
	require.Equal(n.t, rejection.Message+". "+rejection.Explanation, rejection.EventMessage())
	return rejection.Explanation
}

// connectGPU connects a plugin with one device on each of these NUMA nodes.
func (n *node) connectGPU(nodes ...device.Mask) {
	var list []device.Device
	for _, mask := range nodes {
		list = append(list, device.Device{ID: "gpu" + mask.String(), Healthy: true, Nodes: mask})
	}
	plugin := devicetest.NewPlugin(devicetest.Options{Devices: list})
	feed, err := n.devices.Allocator().Connect("example.com/gpu", "", plugin)
	require.NoError(n.t, err)
	require.NoError(n.t, plugin.Attach(feed))
}

func TestRejectionNamesTheNUMANodesOfDevicesAndCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "2 sockets 2 nodes 4 cores")
		n.policy = device.SingleNUMANode
		defer n.start()()
		n.connectGPU(1)
		pod := newPod("pod", "1", "4")
		pod.Spec.Containers[1].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		assert.Equal(t, "free devices of example.com/gpu are on the NUMA nodes {0}. "+
			"container b needs 4 CPUs: node 0: 2 of 4 free (1 reserved, 1 exclusive); node 1: 4 of 4 free (0 reserved, 0 exclusive)", n.rejectUnaligned(pod))

		pod = newPod("two", "1")
		pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		n.run(pod)
		pod = newPod("three", "500m")
		pod.Spec.Containers[0].Resources.Limits["example.com/gpu"] = resource.MustParse("1")
		assert.Equal(t, "too few devices of example.com/gpu are free", n.rejectUnaligned(pod), "the container needs no CPUs of its own")
	})
}

func TestRejectionOfWholePodExplainsItsContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "2 sockets 2 nodes 2 cores")
		n.policy, n.podScope = device.SingleNUMANode, true
		defer n.start()()
		assert.Equal(t, "container a needs 2 CPUs: node 0: 1 of 2 free (1 reserved, 0 exclusive); node 1: 2 of 2 free (0 reserved, 0 exclusive). "+
			"container c needs 1 CPUs: node 0: 1 of 2 free (1 reserved, 0 exclusive); node 1: 2 of 2 free (0 reserved, 0 exclusive)",
			n.rejectUnaligned(newPod("pod", "2", "500m", "1")))
	})
}
