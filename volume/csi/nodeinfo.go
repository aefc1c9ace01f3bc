// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// NodeInfo is what a driver says about the node that it runs on. Its methods put that into objects of the cluster, and take it
// out, as the kubelet does (pkg/volume/csi/nodeinfomanager). They are pure.
type NodeInfo struct {
	Driver     string            // by its name
	NodeID     string            // by which the driver knows the node
	MaxVolumes int64             // that can be attached to the node; zero or less: nobody says
	Topology   map[string]string // labels of nodes where volumes can be used
}

// AnnotationNodeID is the annotation of a Node object with the IDs of drivers, a JSON object by their names.
const AnnotationNodeID = "csi.volume.kubernetes.io/nodeid"

// AddToNode puts ID and topology into annotation and labels of a Node object, and reports whether that has changed it. A label that
// has another value is an error, and so is an annotation that is no JSON; the object is not changed then.
func (i NodeInfo) AddToNode(node *corev1.Node) (changed bool, err error) {
	ids, err := nodeIDs(node)
	if err != nil {
		return false, err
	}
	for _, key := range slices.Sorted(maps.Keys(i.Topology)) {
		if old, ok := node.Labels[key]; ok && old != i.Topology[key] {
			return false, fmt.Errorf("topology of CSI driver %s: label %s is %q, and is to be %q", i.Driver, key, old, i.Topology[key])
		}
	}
	if old, ok := ids[i.Driver]; !ok || old != i.NodeID {
		ids[i.Driver] = i.NodeID
		setNodeIDs(node, ids)
		changed = true
	}
	for key, value := range i.Topology {
		if _, ok := node.Labels[key]; ok {
			continue
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[key] = value
		changed = true
	}
	return changed, nil
}

// RemoveFromNode takes the ID of a driver out of a Node object and reports whether that has changed it. Labels stay: other drivers
// may have the same.
func RemoveFromNode(node *corev1.Node, driver string) (changed bool, err error) {
	ids, err := nodeIDs(node)
	if err != nil {
		return false, err
	}
	if _, ok := ids[driver]; !ok {
		return false, nil
	}
	delete(ids, driver)
	setNodeIDs(node, ids)
	return true, nil
}

func nodeIDs(node *corev1.Node) (map[string]string, error) {
	ids := map[string]string{}
	if text := node.Annotations[AnnotationNodeID]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("annotation %s of node %s: %.256q: %w", AnnotationNodeID, node.Name, text, err)
		}
	}
	if ids == nil { // it was null
		ids = map[string]string{}
	}
	return ids, nil
}

func setNodeIDs(node *corev1.Node, ids map[string]string) {
	if len(ids) == 0 {
		delete(node.Annotations, AnnotationNodeID)
		return
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return // strings can be marshalled
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[AnnotationNodeID] = string(text)
}

// AddToCSINode puts a driver into a CSINode object, in place of what is there of it, and reports whether that has changed it.
func (i NodeInfo) AddToCSINode(node *storagev1.CSINode) (changed bool) {
	want := storagev1.CSINodeDriver{Name: i.Driver, NodeID: i.NodeID, TopologyKeys: slices.Sorted(maps.Keys(i.Topology))}
	if i.MaxVolumes > 0 {
		count := int32(min(i.MaxVolumes, math.MaxInt32))
		want.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	for _, d := range node.Spec.Drivers {
		if d.Name == i.Driver && d.NodeID == want.NodeID && sameKeys(d.TopologyKeys, want.TopologyKeys) && limit(d) == limit(want) {
			return false
		}
	}
	RemoveFromCSINode(node, i.Driver)
	node.Spec.Drivers = append(node.Spec.Drivers, want)
	return true
}

// RemoveFromCSINode takes a driver out of a CSINode object and reports whether that has changed it.
func RemoveFromCSINode(node *storagev1.CSINode, driver string) (changed bool) {
	before := len(node.Spec.Drivers)
	node.Spec.Drivers = slices.DeleteFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	return len(node.Spec.Drivers) != before
}

// sameKeys compares with keys that are sorted.
func sameKeys(keys, sorted []string) bool {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return slices.Equal(slices.Compact(keys), sorted)
}

// limit returns how many volumes a driver can attach; -1: nobody says.
func limit(d storagev1.CSINodeDriver) int64 {
	if d.Allocatable == nil || d.Allocatable.Count == nil {
		return -1
	}
	return int64(*d.Allocatable.Count)
}
