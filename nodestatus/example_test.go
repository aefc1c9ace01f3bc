// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus_test

import (
	"context"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// A node becomes short of memory. A real one has os.DirFS("/") as its file system, and its facts from the runtime.
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
		Runtime: nodestatus.RuntimeState{}.After(cri.Status{Conditions: []cri.Condition{
			{Type: cri.ConditionRuntimeReady, Status: true}, {Type: cri.ConditionNetworkReady, Status: true},
		}}, now),
	}
	previous, _ := nodestatus.Initial(facts)
	previous.UID = "u1"

	facts.Now = now.Add(10 * time.Second)
	facts.Health.MemoryPressure = true
	node, events := nodestatus.Build(previous, facts)
	fmt.Println("changed:", nodestatus.Changed(previous, node))
	fmt.Println("allocatable:", node.Status.Allocatable.Memory())
	for _, c := range node.Status.Conditions {
		fmt.Println(c.Type, c.Status, c.LastTransitionTime.UTC().Format(time.TimeOnly))
	}
	for _, e := range events {
		fmt.Println("event:", e.Message)
	}
	// Output:
	// changed: true
	// allocatable: 4Gi
	// MemoryPressure True 09:00:10
	// DiskPressure False 09:00:00
	// PIDPressure False 09:00:00
	// Ready True 09:00:00
	// event: Node n1 status is now: NodeHasInsufficientMemory
}
