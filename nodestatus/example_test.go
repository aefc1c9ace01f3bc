// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"context"
	"fmt"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// A node becomes short of memory. An agent passes os.DirFS("/") as the file system, and facts of its runtime.
func ExampleBuild() {
	root := nodestatus.Root{FS: fstest.MapFS{
		"proc/meminfo":                   {Data: []byte("MemTotal: 4194304 kB\n")},
		"proc/sys/kernel/osrelease":      {Data: []byte("6.12.0\n")},
		"proc/sys/kernel/random/boot_id": {Data: []byte("b1\n")},
		"sys/devices/system/cpu/online":  {Data: []byte("0-3\n")},
	}}
	machine, err := root.Machine(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	facts := nodestatus.Facts{
		Config:  nodestatus.Config{Name: "n1", NoLocalStorageCapacity: true},
		Now:     now,
		Machine: machine,
		Runtime: nodestatus.RuntimeState{}.WithStatus(cri.Status{Conditions: []cri.Condition{
			{Type: cri.ConditionRuntimeReady, Status: true}, {Type: cri.ConditionNetworkReady, Status: true},
		}}, now).WithVersion(cri.Version{RuntimeName: "containerd", RuntimeVersion: "2.4.0"}),
	}
	previous, _ := nodestatus.Initial(facts)
	previous.UID = "u1"

	facts.Now = now.Add(10 * time.Second)
	facts.Health.MemoryPressure = true
	node, events := nodestatus.Build(previous, facts)
	for _, err := range nodestatus.FactErrors(previous, facts) {
		fmt.Println("unknown:", err)
	}
	fmt.Println("changed:", nodestatus.Changed(previous, node))
	fmt.Println("allocatable:", node.Status.Allocatable.Memory())
	for _, c := range node.Status.Conditions {
		fmt.Println(c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly))
	}
	for _, e := range events {
		fmt.Println("event:", e.Message)
	}
	facts.Announced = facts.Announced.WithEvents(events) // so that the next Build does not return the reboot event again
	// Output:
	// unknown: addresses of node n1: the name has no address of this machine, and there is no default route
	// changed: true
	// allocatable: 4Gi
	// MemoryPressure True 09:00:10
	// DiskPressure False 09:00:00
	// PIDPressure False 09:00:00
	// Ready True 09:00:00
	// event: Node n1 status is now: NodeHasInsufficientMemory
}

// An agent finds the Node object of a previous agent, whose device plugins have not registered again yet.
func ExampleReconcile() {
	facts := nodestatus.Facts{Config: nodestatus.Config{Name: "n1", OperatingSystem: "linux", Architecture: "arm64"}}
	initial, _ := nodestatus.Initial(facts)
	existing := initial.DeepCopy()
	existing.UID = "u1"
	existing.Labels[corev1.LabelArchStable] = "amd64"
	existing.Status.Capacity = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}

	node, stale := nodestatus.ZeroExtendedResources(existing)
	node, changed := nodestatus.Reconcile(node, initial)
	if !stale && !changed {
		return
	}
	patch, err := nodestatus.Patch(existing, node) // for a PATCH of nodes/n1/status
	fmt.Println(string(patch), err)
	// Output:
	// {"metadata":{"labels":{"kubernetes.io/arch":"arm64"},"uid":"u1"},"status":{"allocatable":{"example.com/gpu":"0"},"capacity":{"example.com/gpu":"0"}}} <nil>
}

// A configuration from the values of kubelet flags.
func ExampleConfig() {
	var (
		c   nodestatus.Config
		err error
	)
	if c.Name, err = nodestatus.NodeName(" Edge-1 "); err != nil { // --hostname-override
		fmt.Println(err)
	}
	c.Labels = nodestatus.ParseLabels("disk=ssd,example.com/rack=4")                                         // --node-labels
	if c.Taints, err = nodestatus.ParseTaints("gpu=a100:NoSchedule,example.com/new:NoExecute"); err != nil { // --register-with-taints
		fmt.Println(err)
	}
	if c.NodeIPs, err = nodestatus.ParseNodeIPs("10.0.0.1,fd00::1"); err != nil { // --node-ip
		fmt.Println(err)
	}
	fmt.Println(c.Name, c.Labels, len(c.Taints), c.NodeIPs, c.Validate())
	// Output: edge-1 map[disk:ssd example.com/rack:4] 2 [10.0.0.1 fd00::1] <nil>
}

// An agent raises an alert for some events of its node.
func ExampleEvent() {
	alert := func(e nodestatus.Event) string {
		switch e.Reason {
		case nodestatus.ReasonInsufficientMemory, nodestatus.ReasonDiskPressure, nodestatus.ReasonInsufficientPID:
			return "pressure"
		case nodestatus.ReasonNotReady, nodestatus.ReasonRebooted:
			return "outage"
		case nodestatus.ReasonSufficientMemory, nodestatus.ReasonNoDiskPressure, nodestatus.ReasonSufficientPID, nodestatus.ReasonReady:
			return "resolved"
		case nodestatus.ReasonStarting, nodestatus.ReasonSchedulable, nodestatus.ReasonNotSchedulable:
			return "none"
		}
		return "unknown"
	}
	fmt.Println(alert(nodestatus.StartingEvent()), alert(nodestatus.Event{Type: corev1.EventTypeWarning, Reason: nodestatus.ReasonRebooted}))
	// Output: none outage
}
