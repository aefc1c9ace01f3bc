// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// pluginEnv is an environment variable with the path of a built hack/deviceplugin, for virtual machines in which the go command is slow.
const pluginEnv = "NODEAGENT_DEVICEPLUGIN"

// numaNode is a node whose pods are plain processes, on a machine with at least two NUMA nodes.
type numaNode struct {
	files
	data string // a file for each device of the plugin
}

// newNUMANode skips the test on a machine with one NUMA node, unless it is a VM that should have several.
func newNUMANode(t *testing.T) *numaNode {
	machine, err := topology.Read(os.DirFS("/"))
	require.NoError(t, err)
	if len(machine.Nodes) < 2 {
		require.Empty(t, os.Getenv("VM_MACHINE"), "the VM has the NUMA nodes %v", machine.Nodes)
		t.Skip("needs the NUMA nodes 0 and 1: make test-vm runs it in a kernel of its own")
	}
	n := &numaNode{newProcesses(t), filepath.Join(t.TempDir(), "gadgets")}
	require.NoError(t, os.MkdirAll(n.data, 0o750))
	require.NoError(t, os.MkdirAll(n.pluginDir(), 0o750))
	return n
}

func (n *numaNode) pluginDir() string { return filepath.Join(n.state, "device-plugins") }

// startPlugin starts a plugin with a healthy device of each ID on its NUMA node.
func (n *numaNode) startPlugin(devices map[string]int) {
	n.t.Helper()
	for id, node := range devices {
		require.NoError(n.t, os.WriteFile(filepath.Join(n.data, id), fmt.Appendf(nil, "healthy %d", node), 0o600))
	}
	binary := os.Getenv(pluginEnv)
	if binary == "" {
		binary = filepath.Join(n.t.TempDir(), "deviceplugin")
		out, err := exec.CommandContext(n.t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "../../hack/deviceplugin").CombinedOutput()
		require.NoError(n.t, err, "%s", out)
	}
	plugin := exetest.StartCommand(n.t, exec.Command(binary, "-plain", "-dir", n.pluginDir(), "-data", n.data))
	plugin.AwaitLine(timeout, "registered example.com/gadget")
}

// writePod writes a pod that limits devices and prints their IDs.
func (n *numaNode) writePod(name string, count int) {
	n.manifests.Write(name+".yaml", limitGadgets(podYAML(name, "echo has $GADGETS; "+sleeper), count))
}

// requireRefused checks that a pod fails with the kubelet's reason and message for NUMA nodes.
func (n *numaNode) requireRefused(a *exetest.Process, pod string) {
	n.t.Helper()
	a.AwaitLine(timeout, `"pod is rejected"`, "pod="+pod, "reason=TopologyAffinityError", `message="Resources cannot be allocated with Topology locality"`)
	a.AwaitLine(timeout, "pod="+pod, "phase=Failed", "TopologyAffinityError")
	require.Empty(n.t, n.log(pod, "main"), "the container has not run")
}

// podResources connects to the podresources API of the agent.
func (n *numaNode) podResources() podresourcesv1.PodResourcesListerClient {
	return dialPodResources(n.t, n.state)
}

// dialPodResources connects to the podresources API of an agent with this root directory.
func dialPodResources(t *testing.T, dir string) podresourcesv1.PodResourcesListerClient {
	connection, err := grpc.NewClient("unix:"+filepath.Join(dir, "pod-resources", "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return podresourcesv1.NewPodResourcesListerClient(connection)
}

// devicesOf returns devices as sorted texts such as "pod: a on 0". who is empty for devices of no pod.
func devicesOf(who string, devices []*podresourcesv1.ContainerDevices) (list []string) {
	for _, d := range devices {
		var nodes []int64
		for _, node := range d.GetTopology().GetNodes() {
			nodes = append(nodes, node.GetID())
		}
		for _, id := range d.GetDeviceIds() {
			list = append(list, strings.TrimPrefix(fmt.Sprintf("%s: %s on %v", who, id, nodes), ": "))
		}
	}
	slices.Sort(list)
	return list
}

// With policy single-numa-node, a container gets devices of one NUMA node, although a device of another node has a lower ID. A pod for which no node
// has enough devices is refused.
func TestIntegrationDevicesOfNUMANodes(t *testing.T) {
	n := newNUMANode(t)
	a := n.start(map[string]any{"topologyManagerPolicy": "single-numa-node"})
	n.startPlugin(map[string]int{"a": 0, "b": 1, "c": 0})
	api := n.podResources()
	exetest.Eventually(t, timeout, func() error { // the plugin lists its devices after its registration
		allocatable, err := api.GetAllocatableResources(within(t, timeout), &podresourcesv1.AllocatableResourcesRequest{}, grpc.WaitForReady(true))
		if found := devicesOf("", allocatable.GetDevices()); err == nil && !slices.Equal(found, []string{"a on [0]", "b on [1]", "c on [0]"}) {
			err = fmt.Errorf("allocatable devices: %q", found)
		}
		return err
	})

	n.writePod("triple", 3)
	n.requireRefused(a, "triple-n1") // three devices are free
	n.writePod("pair", 2)
	n.awaitLog("pair-n1", "main", "has a,c")
	n.writePod("second", 2)
	n.requireRefused(a, "second-n1")
	n.writePod("single", 1)
	n.awaitLog("single-n1", "main", "has b")

	answer, err := api.List(within(t, timeout), &podresourcesv1.ListPodResourcesRequest{})
	require.NoError(t, err)
	var held []string
	for _, pod := range answer.GetPodResources() {
		for _, c := range pod.GetContainers() {
			held = append(held, devicesOf(pod.GetName(), c.GetDevices())...)
		}
	}
	slices.Sort(held)
	require.Equal(t, []string{"pair-n1: a on [0]", "pair-n1: c on [0]", "single-n1: b on [1]"}, held)
	for _, pod := range []string{"pair-n1", "single-n1"} {
		a.AwaitLine(timeout, "pod="+pod, "phase=Running")
	}
}
