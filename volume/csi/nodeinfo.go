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

// NodeInfo is the NodeGetInfo response of a driver. Its methods write it to Node and CSINode objects in memory, as the kubelet
// does (pkg/volume/csi/nodeinfomanager).
type NodeInfo struct {
	Driver     string            // name of the driver
	NodeID     string            // ID of the node for the driver
	MaxVolumes int64             // maximum number of volumes that can be attached to the node; zero or less: unknown
	Topology   map[string]string // topology labels of the node
}

// AnnotationNodeID is the annotation of a Node with the node IDs of its drivers: a JSON object, by driver name.
const AnnotationNodeID = "csi.volume.kubernetes.io/nodeid"

// AddToNode adds the node ID of the driver to the annotation AnnotationNodeID, and the topology to the labels. It reports
// whether it has changed the Node. It returns an error and changes nothing if a label has another value or the annotation is not
// valid JSON.
func (i NodeInfo) AddToNode(node *corev1.Node) (changed bool, err error) {
	ids, err := parseNodeIDs(node)
	if err != nil {
		return false, err
	}
	for _, key := range slices.Sorted(maps.Keys(i.Topology)) {
		if old, ok := node.Labels[key]; ok && old != i.Topology[key] {
			return false, fmt.Errorf("topology of CSI driver %s: label %s is %q, must be %q", i.Driver, key, old, i.Topology[key])
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

// RemoveFromNode removes the node ID of the driver from the annotation AnnotationNodeID of the Node. It returns true if it
// has changed the Node. It keeps the topology labels, because other drivers may use the same labels.
func RemoveFromNode(node *corev1.Node, driver string) (changed bool, err error) {
	ids, err := parseNodeIDs(node)
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

func parseNodeIDs(node *corev1.Node) (map[string]string, error) {
	ids := map[string]string{}
	if text := node.Annotations[AnnotationNodeID]; text != "" {
		if err := json.Unmarshal([]byte(text), &ids); err != nil {
			return nil, fmt.Errorf("annotation %s of node %s: %.256q: %w", AnnotationNodeID, node.Name, text, err)
		}
	}
	if ids == nil { // the annotation was null
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
		return // cannot happen for a map of strings
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[AnnotationNodeID] = string(text)
}

// AddToCSINode adds the driver to the CSINode, or replaces its entry if that differs. It returns true if it has changed the
// CSINode.
func (i NodeInfo) AddToCSINode(node *storagev1.CSINode) (changed bool) {
	want := storagev1.CSINodeDriver{Name: i.Driver, NodeID: i.NodeID, TopologyKeys: slices.Sorted(maps.Keys(i.Topology))}
	if i.MaxVolumes > 0 {
		count := int32(min(i.MaxVolumes, math.MaxInt32))
		want.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	for _, d := range node.Spec.Drivers {
		if d.Name == i.Driver && d.NodeID == want.NodeID && equalKeys(d.TopologyKeys, want.TopologyKeys) && attachLimit(d) == attachLimit(want) {
			return false
		}
	}
	RemoveFromCSINode(node, i.Driver)
	node.Spec.Drivers = append(node.Spec.Drivers, want)
	return true
}

// RemoveFromCSINode removes the entry of the driver from the CSINode. It returns true if there was an entry.
func RemoveFromCSINode(node *storagev1.CSINode, driver string) (changed bool) {
	before := len(node.Spec.Drivers)
	node.Spec.Drivers = slices.DeleteFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	return len(node.Spec.Drivers) != before
}

// equalKeys reports whether two slices contain the same strings. The first slice may be unsorted and have duplicates.
func equalKeys(keys, sorted []string) bool {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	return slices.Equal(slices.Compact(keys), sorted)
}

// attachLimit returns the maximum number of volumes of the driver that can be attached to the node. It returns -1 if the limit is
// unknown.
func attachLimit(driver storagev1.CSINodeDriver) int64 {
	if driver.Allocatable == nil || driver.Allocatable.Count == nil {
		return -1
	}
	return int64(*driver.Allocatable.Count)
}
