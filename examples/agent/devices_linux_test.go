// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// gadgetNode is a node with a device plugin, which is a separate process.
type gadgetNode struct {
	*node
	binary, data string
}

func newGadgetNode(t *testing.T, devices ...string) *gadgetNode {
	return addGadgets(t, newNode(t), devices...)
}

// addGadgets adds devices to a node.
func addGadgets(t *testing.T, node *node, devices ...string) *gadgetNode {
	n := &gadgetNode{node: node, data: filepath.Join(t.TempDir(), "gadgets")}
	n.binary = filepath.Join(t.TempDir(), "deviceplugin")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", n.binary, "../../hack/deviceplugin").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.MkdirAll(n.data, 0o750))
	require.NoError(t, os.MkdirAll(n.pluginDir(), 0o750))
	for _, id := range devices {
		n.setDevice(id, "healthy")
	}
	return n
}

func (n *gadgetNode) pluginDir() string { return filepath.Join(n.state, "device-plugins") }

func (n *gadgetNode) startPlugin(flags ...string) *exetest.Process {
	n.t.Helper()
	return exetest.StartCommand(n.t, exec.Command(n.binary, append([]string{"-dir", n.pluginDir(), "-data", n.data}, flags...)...))
}

// setDevice sets the health of a device.
func (n *gadgetNode) setDevice(id, health string) {
	path := filepath.Join(n.data, id)
	require.NoError(n.t, os.WriteFile(path+".tmp", []byte(health), 0o600))
	require.NoError(n.t, os.Rename(path+".tmp", path))
}

// calls returns the calls of the agent.
func (n *gadgetNode) calls() []string {
	text, err := os.ReadFile(filepath.Join(n.data, ".calls"))
	require.NoError(n.t, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// gadgetPod has containers of all kinds that limit devices, and one that does not.
const gadgetPod = `apiVersion: v1
kind: Pod
metadata: {name: gadgets}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
    - name: prepare
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "echo prepare has $GADGETS"]
      resources: {limits: {example.com/gadget: 2}}
    - name: beside
      image: nodeagent.test/busybox:1
      restartPolicy: Always
      command: [/bin/sh, -c, "echo beside has $GADGETS; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      resources: {limits: {example.com/gadget: 1}}
  containers:
    - name: main
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "echo main has $GADGETS; ls /gadgets; (: </dev/gadget-$GADGETS) && echo opened; (: >>/dev/gadget-$GADGETS) 2>/dev/null || echo read-only; mknod /tmp/other c 10 229; (: </tmp/other) 2>/dev/null || echo no other; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
      resources: {limits: {example.com/gadget: 1}}
    - name: without
      image: nodeagent.test/busybox:1
      command: [/bin/sh, -c, "echo without has ${GADGETS:-nothing}; ls /dev/gadget* 2>/dev/null || echo no device; trap 'exit 0' TERM; while :; do sleep 0.1; done"]
`

// A container can open the devices that it was given, and no other.
func TestIntegrationDevices(t *testing.T) {
	n := newGadgetNode(t, "a", "b", "c")
	n.manifests.Write("gadgets.yaml", gadgetPod)
	a := n.start(nil)
	a.AwaitLine(timeout, "waits for the plugin", "example.com/gadget") // the pod is older than the plugin
	plugin := n.startPlugin()
	plugin.AwaitLine(timeout, "registered example.com/gadget")
	a.AwaitLine(2*timeout, "pod=gadgets-n1 phase=Running", `summary="2/2 restarts=0`)
	n.awaitLog("gadgets-n1", "prepare", "prepare has a,b")
	n.awaitLog("gadgets-n1", "beside", "beside has a")
	n.awaitLog("gadgets-n1", "main", "main has b", "b", "opened", "read-only", "no other")
	n.awaitLog("gadgets-n1", "without", "without has nothing", "no device")
	require.Equal(t, []string{"allocate a,b", "allocate a", "allocate b", "start a,b", "start a", "start b"}, n.calls())
	main, err := n.containerNamed("gadgets-n1", "main")
	require.NoError(t, err)
	require.Equal(t, "b", main.Annotations["example.com/gadgets"])

	// Another pod gets the rest, and a third one fails with the kubelet's message.
	n.manifests.Write("second.yaml", limitGadgets(podYAML("second", "echo second has $GADGETS; sleep 1000"), 1))
	a.AwaitLine(timeout, "pod=second-n1 phase=Running")
	n.awaitLog("second-n1", "main", "second has c")
	n.manifests.Write("third.yaml", limitGadgets(podYAML("third", "sleep 1000"), 1))
	a.AwaitLine(timeout, "pod=third-n1", "requested number of devices unavailable for example.com/gadget. Requested: 1, Available: 0")

	// The devices of a removed pod are free.
	n.manifests.Remove("third.yaml")
	n.manifests.Remove("second.yaml")
	a.AwaitLine(timeout, "pod is removed", "second-n1")
	n.manifests.Write("fourth.yaml", limitGadgets(podYAML("fourth", "echo fourth has $GADGETS; sleep 1000"), 1))
	n.awaitLog("fourth-n1", "main", "fourth has c")
	plugin.Kill()
	n.drain(a)
}

// limitGadgets adds a limit to the container of a manifest.
func limitGadgets(manifest string, count int) string {
	return strings.Replace(manifest, "      command:", fmt.Sprintf("      resources: {limits: {example.com/gadget: %d}}\n      command:", count), 1)
}

// containerNamed returns the container of a pod with this name.
func (n *gadgetNode) containerNamed(pod, name string) (cri.Container, error) {
	pods, err := n.pods()
	if err != nil {
		return cri.Container{}, err
	}
	at := slices.IndexFunc(pods[pod].Containers, func(c cri.Container) bool { return c.Name == name })
	if at < 0 {
		return cri.Container{}, fmt.Errorf("pod %s has no container %s", pod, name)
	}
	return pods[pod].Containers[at], nil
}

// A container has the devices of two plugins. A pod that is deleted while Allocate runs starts no container, and frees its devices; pods without
// devices do not wait for it.
func TestIntegrationDevicesOfTwoPlugins(t *testing.T) {
	n := newGadgetNode(t, "a", "b")
	widgets := &gadgetNode{node: n.node, binary: n.binary, data: filepath.Join(t.TempDir(), "widgets")}
	require.NoError(t, os.MkdirAll(widgets.data, 0o750))
	widgets.setDevice("w", "healthy")
	a, first, second := n.start(nil), n.startPlugin(), widgets.startPlugin("-resource", "example.com/widget")
	a.AwaitLine(timeout, "device plugin is connected", "example.com/widget")
	both := strings.NewReplacer("example.com/gadget: 2", "example.com/gadget: 2, example.com/widget: 1").Replace(limitGadgets(podYAML("both",
		"echo has $GADGETS and $WIDGETS; (: </dev/gadget-b) && (: </dev/widget-w) && echo opened; trap 'exit 0' TERM; while :; do sleep 0.1; done"), 2))
	n.manifests.Write("both.yaml", both)
	n.awaitRunning(2*timeout, "both-n1")
	n.awaitLog("both-n1", "main", "has a,b and w", "opened")
	n.manifests.Remove("both.yaml")
	a.AwaitLine(timeout, "pod is removed", "both-n1")

	hold := filepath.Join(n.data, ".hold")
	require.NoError(t, os.WriteFile(hold, nil, 0o600))
	n.manifests.Write("gone.yaml", strings.ReplaceAll(both, "name: both", "name: gone"))
	exetest.Eventually(t, timeout, func() error {
		if calls := n.calls(); len(calls) != 3 {
			return fmt.Errorf("calls are %s", calls)
		}
		return nil
	})
	n.manifests.Write("other.yaml", podYAML("other", sleeper))
	n.awaitRunning(timeout, "other-n1")
	n.manifests.Remove("gone.yaml")
	a.AwaitLine(timeout, "pod is removed", "gone-n1")
	require.NoError(t, os.Remove(hold))
	held := len(n.calls()) // a call that timed out is repeated
	require.NotContains(t, n.calls()[2:], "start a,b")
	n.manifests.Write("next.yaml", strings.ReplaceAll(both, "name: both", "name: next"))
	n.awaitRunning(timeout, "next-n1")
	n.awaitLog("next-n1", "main", "has a,b and w", "opened")
	require.Equal(t, []string{"allocate a,b", "start a,b"}, n.calls()[held:])
	first.Kill()
	second.Kill()
	n.drain(a)
}

// A plugin names a CDI device, which the runtime applies from its spec file.
func TestIntegrationDevicesOfCDI(t *testing.T) {
	const specs = "/var/run/cdi" // where containerd looks for specs
	n := newGadgetNode(t, "a")
	require.NoError(t, os.MkdirAll(specs, 0o755))
	t.Cleanup(func() { _ = os.Remove(specs) }) // fails if it has specs of others
	spec := filepath.Join(specs, fmt.Sprintf("nodeagent-test-%d.json", os.Getpid()))
	require.NoError(t, os.WriteFile(spec, []byte(`{"cdiVersion": "0.6.0", "kind": "example.com/gadget", "devices": [
		{"name": "a", "containerEdits": {"env": ["FROM_CDI=yes"], "deviceNodes": [{"path": "/dev/cdi-a", "hostPath": "/dev/loop-control", "permissions": "r"}]}}]}`), 0o644))
	t.Cleanup(func() { _ = os.Remove(spec) })
	n.manifests.Write("gadgets.yaml", limitGadgets(podYAML("cdi", "echo has $GADGETS by CDI $FROM_CDI; (: </dev/cdi-a) && echo opened; ls /dev/gadget-a 2>/dev/null || echo no other; sleep 1000"), 1))
	a, plugin := n.start(nil), n.startPlugin("-cdi")
	n.awaitRunning(2*timeout, "cdi-n1")
	n.awaitLog("cdi-n1", "main", "has a by CDI yes", "opened", "no other")
	plugin.Kill()
	n.drain(a)
}

// A container whose device becomes unhealthy is restarted with the same device, or its pod fails, as unhealthyDevices says. A restart of the agent does
// neither.
func TestIntegrationUnhealthyDevices(t *testing.T) {
	n := newGadgetNode(t, "a")
	n.manifests.Write("one.yaml", limitGadgets(podYAML("one", "echo has $GADGETS; trap 'exit 0' TERM; while :; do sleep 0.1; done"), 1))
	a, plugin := n.start(map[string]any{"unhealthyDevices": "Restart"}), n.startPlugin()
	first := n.awaitRunning(2*timeout, "one-n1")["one-n1"]
	n.setDevice("a", "broken")
	a.AwaitLine(timeout, "Container main has an unhealthy device, will be restarted")
	a.AwaitLine(timeout, "pod=one-n1 phase=Running", "restarts=1")
	second := n.awaitRunning(timeout, "one-n1")["one-n1"]
	require.NotEqual(t, first.ID, second.ID)
	require.Equal(t, "a", second.Annotations["example.com/gadgets"])
	require.Equal(t, []string{"allocate a", "start a", "start a"}, n.calls())

	a.Kill()
	a = n.start(map[string]any{"unhealthyDevices": "Restart"})
	a.AwaitLine(timeout, "pod=one-n1 phase=Running")
	a.AwaitLine(timeout, "device plugin is connected", "example.com/gadget")
	require.Equal(t, second.ID, n.awaitRunning(timeout, "one-n1")["one-n1"].ID)

	a.Kill()
	a = n.start(map[string]any{"unhealthyDevices": "Evict"})
	a.AwaitLine(timeout, "pod=one-n1", "UnhealthyDevice", "Device a of resource example.com/gadget of container main is unhealthy")
	plugin.Kill()
	n.drain(a)
}

// Agent and plugin are killed at random moments, in every order. No container is restarted, no device is held twice, and all devices are
// allocatable in the end.
func TestIntegrationDevicesSurviveKills(t *testing.T) {
	rounds := 6
	if os.Getenv("NODEAGENT_SOAK") == "1" {
		rounds = 50
	}
	n := newGadgetNode(t, "a", "b", "c", "d")
	for _, name := range []string{"one", "two", "three"} {
		n.manifests.Write(name+".yaml", limitGadgets(podYAML(name, "echo has $GADGETS; trap 'exit 0' TERM; while :; do sleep 0.1; done"), 1))
	}
	a, plugin := n.start(nil), n.startPlugin()
	names := []string{"one-n1", "two-n1", "three-n1"}
	first := n.awaitRunning(2*timeout, names...)
	allocated := len(n.calls())
	for range rounds {
		pause := func() { time.Sleep(rand.N(400 * time.Millisecond)) }
		steps := []func(){func() { a.Kill(); pause(); a = n.start(nil) }, func() { plugin.Kill(); pause(); plugin = n.startPlugin() }}
		rand.Shuffle(2, func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps[:1+rand.IntN(2)] {
			step()
			pause()
		}
	}
	// The fourth device is free, and only that one.
	n.manifests.Write("last.yaml", limitGadgets(podYAML("last", "echo has $GADGETS; trap 'exit 0' TERM; while :; do sleep 0.1; done"), 1))
	n.awaitRunning(2*timeout, append(names, "last-n1")...)
	now := n.awaitRunning(timeout, names...)
	for name, c := range first {
		require.Equal(t, c.ID, now[name].ID, "container of %s was restarted", name)
	}
	calls := n.calls()
	require.Len(t, calls, allocated+2, "only the last pod's devices were allocated and started: %s", calls)
	given := map[string]string{}
	for _, name := range append(names, "last-n1") {
		c, err := n.containerNamed(name, "main")
		require.NoError(t, err)
		id := c.Annotations["example.com/gadgets"]
		require.Empty(t, given[id], "device %s is held by %s and %s", id, given[id], name)
		given[id] = name
	}
	require.Equal(t, []string{"a", "b", "c", "d"}, slices.Sorted(maps.Keys(given)))
	plugin.Kill()
	n.drain(a)
}
