// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

func ExampleNew() {
	plugin, err := csi.New(csi.Options{Registry: "/var/lib/agent/plugins_registry", NodeName: "n1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	plugins := map[string]volume.Plugin{volume.CSI: plugin} // for volume.Options, in which plugin can also be the Watcher
	fmt.Println(len(plugins), plugin.Drivers())
	// Output:
	// 1 []
}

// The NodeGetInfo response of a driver in the objects of a cluster.
func ExampleNodeInfo() {
	info := csi.NodeInfo{Driver: "csi.example", NodeID: "id-7", MaxVolumes: 8, Topology: map[string]string{"topology.example/zone": "a"}}
	var node corev1.Node
	var csiNode storagev1.CSINode
	changed, err := info.AddToNode(&node)
	fmt.Println(changed, err, node.Annotations[csi.AnnotationNodeID], node.Labels)
	fmt.Println(info.AddToCSINode(&csiNode), *csiNode.Spec.Drivers[0].Allocatable.Count, csiNode.Spec.Drivers[0].TopologyKeys)
	changed, err = csi.RemoveFromNode(&node, "csi.example") // after the driver was deregistered
	fmt.Println(changed, err, csi.RemoveFromCSINode(&csiNode, "csi.example"))
	// Output:
	// true <nil> {"csi.example":"id-7"} map[topology.example/zone:a]
	// true 8 [topology.example/zone]
	// true <nil> true
}

// Failed calls of drivers, by gRPC code.
func ExampleHooks() {
	failures := map[string]int{}
	hooks := csi.Hooks{CallCompleted: func(driver, method string, _ time.Duration, err error) {
		if failed, ok := errors.AsType[*csi.CallError](err); ok {
			failures[driver+" "+method+" "+failed.Code()]++
		}
	}}
	hooks.CallCompleted("csi.example", "NodePublishVolume", time.Second, &csi.CallError{
		Driver: "csi.example", Method: "NodePublishVolume", Err: status.Error(codes.NotFound, "no such volume"),
	})
	fmt.Println(failures)
	// Output:
	// map[csi.example NodePublishVolume NotFound:1]
}
