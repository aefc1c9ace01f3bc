// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/exetest"
)

const gadgetDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: gadgets}
spec:
  replicas: 2
  selector: {matchLabels: {app: gadgets}}
  template:
    metadata: {labels: {app: gadgets}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: nodeagent.test/busybox:1
        command: [sh, -c, "echo has $GADGETS; trap exit TERM; while :; do sleep 0.2; done"]
        resources: {limits: {example.com/gadget: 1}}
`

// The scheduler places pods that need devices; the Node and the statuses of pods follow the plugin; a resource of another manager stays.
func TestClusterDevices(t *testing.T) {
	needCluster(t)
	n := newGadgetNode(t, "a", "b")
	config := map[string]any{"nodeIPs": []string{n.lab.Subnet().Addr().Next().String()}}
	m := n.node.joinCluster(t, config, false)
	m.do("patch", "node", "n1", "--subresource", "status", "--type", "json", "-p", `[{"op": "add", "path": "/status/capacity/example.org~1foreign", "value": "7"}]`)
	plugin := n.startPlugin()
	began := time.Now()
	amounts := m.eventually(timeout, "get", "node", "n1", "-o", `jsonpath={.status.capacity.example\.com/gadget} {.status.allocatable.example\.com/gadget}`)
	amounts("2 2")
	t.Logf("the Node has the devices %v after the start of the plugin", time.Since(began).Round(10*time.Millisecond))

	m.apply(gadgetDeployment)
	m.do("rollout", "status", "deployment/gadgets", "--timeout=60s")
	health := m.eventually(timeout, "get", "pods", "-l", "app=gadgets", "-o",
		`jsonpath={range .items[*]}{.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health},{end}`)
	health("Healthy,Healthy,")
	m.do("scale", "deployment/gadgets", "--replicas=3")
	m.eventually(timeout, "get", "pods", "-l", "app=gadgets", "-o", `jsonpath={range .items[?(@.status.phase=="Pending")]}{.status.conditions[0].reason}{end}`)("Unschedulable")
	m.do("scale", "deployment/gadgets", "--replicas=2")

	// An ephemeral container has none of the devices of its pod.
	debugged, calls := m.listPods("app=gadgets")[0].Name, len(n.calls())
	m.do("debug", debugged, "--image=nodeagent.test/busybox:1", "--image-pull-policy=IfNotPresent", "-c", "look", "--profile=general", "--",
		"sh", "-c", "echo look has ${GADGETS:-nothing}; ls /dev/gadget* 2>/dev/null || echo no device")
	m.eventually(timeout, "logs", debugged, "-c", "look")("look has nothing\nno device")
	require.Len(t, n.calls(), calls)

	// A device becomes unhealthy.
	began = time.Now()
	n.setDevice("a", "broken")
	amounts("2 1")
	t.Logf("the Node follows %v after a device became unhealthy", time.Since(began).Round(10*time.Millisecond))
	exetest.Eventually(t, timeout, func() error {
		for _, pod := range m.listPods("app=gadgets") {
			for _, status := range pod.Status.ContainerStatuses[0].AllocatedResourcesStatus {
				for _, r := range status.Resources {
					if want := map[string]string{"a": "Unhealthy", "b": "Healthy"}[string(r.ResourceID)]; string(r.Health) != want {
						return fmt.Errorf("device %s of %s is %s, want %s", r.ResourceID, pod.Name, r.Health, want)
					}
				}
			}
		}
		return nil
	})
	n.setDevice("a", "healthy")
	amounts("2 2")

	// The plugin ends: its devices are not allocatable. The running pods stay, and their devices are unknown.
	plugin.Kill()
	amounts("2 0")
	health("Unknown,Unknown,")
	before := m.containersByPod(m.listPods("app=gadgets"))
	m.restart()
	plugin = n.startPlugin()
	amounts("2 2")
	health("Healthy,Healthy,")
	require.Equal(t, before, m.containersByPod(m.listPods("app=gadgets")), "a restart restarts no container")
	require.Equal(t, "7", m.do("get", "node", "n1", "-o", `jsonpath={.status.capacity.example\.org/foreign}`))
	m.do("delete", "deployment", "gadgets", "--cascade=foreground", "--timeout=60s") // the volumes of the pods are unmounted then
	plugin.Kill()
}
