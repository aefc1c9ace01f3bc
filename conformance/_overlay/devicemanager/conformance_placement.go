// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
)

// NewConformancePlacement returns a node that shares its topology manager with other managers. Its checkpoint is in memory.
func NewConformancePlacement(numa []cadvisorapi.Node) *ConformanceNode {
	return &ConformanceNode{numa: numa, memory: &conformanceCheckpoints{}}
}

// StartWith replaces the device manager by one that reads the checkpoint, and is the first hint provider of this topology manager. No pod is active.
// running has the UIDs and names of the containers that run.
func (n *ConformanceNode) StartWith(topology topologymanager.Manager, sources config.SourcesReady, running [][2]string) error {
	n.Active, n.topology = nil, topology
	if err := n.startManager(n.memory); err != nil {
		return err
	}
	n.manager.sourcesReady, n.manager.containerMap, n.manager.containerRunningSet = sources, containermap.NewContainerMap(), sets.New[string]()
	for _, c := range running {
		id := c[0] + "/" + c[1]
		n.manager.containerMap.Add(c[0], c[1], id)
		n.manager.containerRunningSet.Insert(id)
	}
	return nil
}

// ActivePods returns the active pods.
func (n *ConformanceNode) ActivePods() []*v1.Pod { return n.Active }

// Clean frees the devices of pods that are not active.
func (n *ConformanceNode) Clean() { n.manager.UpdateAllocatedDevices(klog.Logger{}) }

// conformanceCheckpoints keeps one checkpoint in memory.
type conformanceCheckpoints struct {
	checkpointmanager.CheckpointManager // only the methods below are called
	blob                                []byte
}

// CreateCheckpoint replaces the checkpoint.
func (c *conformanceCheckpoints) CreateCheckpoint(_ string, checkpoint checkpointmanager.Checkpoint) (err error) {
	c.blob, err = checkpoint.MarshalCheckpoint()
	return err
}

// GetCheckpoint reads the checkpoint.
func (c *conformanceCheckpoints) GetCheckpoint(_ string, checkpoint checkpointmanager.Checkpoint) error {
	if c.blob == nil {
		return errors.ErrCheckpointNotFound
	}
	if err := checkpoint.UnmarshalCheckpoint(c.blob); err != nil {
		return err
	}
	return checkpoint.VerifyChecksum()
}
