// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"fmt"

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
	plugins := map[string]volume.Plugin{volume.CSI: plugin} // for volume.Options, whose Watcher it can be, too
	fmt.Println(len(plugins), plugin.Drivers())
	// Output:
	// 1 []
}

// What a driver says of its node, in the objects of a cluster.
func ExampleNodeInfo() {
	info := csi.NodeInfo{Driver: "csi.example", NodeID: "id-7", MaxVolumes: 8, Topology: map[string]string{"topology.example/zone": "a"}}
	var node corev1.Node
	var csiNode storagev1.CSINode
	changed, err := info.AddToNode(&node)
	fmt.Println(changed, err, node.Annotations[csi.AnnotationNodeID], node.Labels)
	fmt.Println(info.AddToCSINode(&csiNode), *csiNode.Spec.Drivers[0].Allocatable.Count, csiNode.Spec.Drivers[0].TopologyKeys)
	// Output:
	// true <nil> {"csi.example":"id-7"} map[topology.example/zone:a]
	// true 8 [topology.example/zone]
}
