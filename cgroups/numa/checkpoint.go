// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/kubechecksum"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// CheckpointName is the name of the kubelet's file with the memory of containers, in its root directory.
const CheckpointName = "memory_manager_state"

// checkpointFile is the file of a kubelet in all versions. Version 3 is in Data, with a copy of version 1 for older kubelets. Source:
// pkg/kubelet/cm/memorymanager/state/checkpoint.go.
type checkpointFile struct {
	checkpointV1
	Data         string `json:"data"`
	DataChecksum uint64 `json:"dataChecksum"`
}

// checkpointV1 is version 1.
type checkpointV1 struct {
	PolicyName   string            `json:"policyName"`
	MachineState checkpointMachine `json:"machineState"`
	Entries      checkpointEntries `json:"entries,omitempty"`
	Checksum     uint64            `json:"checksum"`
}

// checkpointV2 is version 2, and without checksum the data of version 3.
type checkpointV2 struct {
	PolicyName   string                   `json:"policyName"`
	MachineState checkpointMachine        `json:"machineState"`
	Entries      checkpointEntries        `json:"entries,omitempty"`
	PodEntries   map[string]checkpointPod `json:"podEntries,omitempty"`
	Checksum     uint64                   `json:"checksum,omitempty"`
}

type (
	checkpointMachine map[int]*checkpointNode
	checkpointEntries map[string]map[string][]checkpointBlock
)

type checkpointNode struct {
	Assignments int                         `json:"numberOfAssignments"`
	Memory      map[string]*checkpointTable `json:"memoryMap"`
	Cells       []int                       `json:"cells"`
}

type checkpointTable struct {
	Total          uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

type checkpointBlock struct {
	Nodes []int  `json:"numaAffinity"`
	Type  string `json:"type"`
	Size  uint64 `json:"size"`
}

// checkpointPod is the memory of a pod with pod-level resources, of which its containers have parts.
type checkpointPod struct {
	Blocks []checkpointBlock `json:"memoryBlocks,omitempty"`
}

// wrapCheckpoint returns the kubelet's error for a checkpoint that it cannot use. An empty path is none.
func wrapCheckpoint(path string, err error) error {
	if path == "" {
		return err
	}
	return fmt.Errorf("could not restore state from checkpoint: %w, please drain this node and delete the memory manager checkpoint file %q before restarting Kubelet", err, path)
}

// ReadCheckpoint reads the file memory_manager_state at path, in the versions 1 to 3. It verifies the checksum as the kubelet does, follows no symbolic
// link, and writes nothing. It returns an error that wraps [fs.ErrNotExist] if the file does not exist, and an error with the kubelet's text if it is
// damaged.
//
// [fs.ErrNotExist]: https://pkg.go.dev/io/fs#ErrNotExist
func ReadCheckpoint(path string) (Saved, error) {
	data, err := plainfile.Read(path, maxFile)
	if err != nil {
		return Saved{}, err
	}
	saved, err := parseCheckpoint(data)
	if err != nil {
		return Saved{}, wrapCheckpoint(path, err)
	}
	saved.Path = path
	return saved, nil
}

// errCorrupt is the kubelet's error for a wrong checksum.
var errCorrupt = errors.New("checkpoint is corrupted")

// parseCheckpoint returns the content of a checkpoint. Source: loadAndMigrateCheckpointV3 in pkg/kubelet/cm/memorymanager/state/state_checkpoint.go.
func parseCheckpoint(content []byte) (Saved, error) {
	if err := checkSize(content); err != nil {
		return Saved{}, err
	}
	file := checkpointFile{checkpointV1: checkpointV1{MachineState: checkpointMachine{}, Entries: checkpointEntries{}}}
	if err := json.Unmarshal(content, &file); err != nil {
		return Saved{}, err
	}
	if file.Data != "" || file.DataChecksum != 0 {
		data, err := parseData(&file)
		if err != nil {
			return Saved{}, fmt.Errorf("could not load v3 checkpoint: %w", err)
		}
		return data.toSaved()
	}
	v2 := checkpointV2{MachineState: checkpointMachine{}, Entries: checkpointEntries{}, PodEntries: map[string]checkpointPod{}}
	if err := json.Unmarshal(content, &v2); err == nil && v2.checksum(true) == v2.Checksum {
		return v2.toSaved()
	}
	v2 = checkpointV2{PolicyName: file.PolicyName, MachineState: file.MachineState, Entries: file.Entries}
	if file.Checksum != 0 && v2.checksum(false) != file.Checksum {
		return Saved{}, errCorrupt
	}
	return v2.toSaved()
}

// parseData returns the content of version 3.
func parseData(file *checkpointFile) (*checkpointV2, error) {
	if err := checkSize([]byte(file.Data)); err != nil {
		return nil, err
	}
	data := &checkpointV2{}
	if err := json.Unmarshal([]byte(file.Data), data); err != nil {
		return nil, fmt.Errorf("failed to deserialize memory manager checkpoint data: %w", err)
	}
	if sumText(file.Data) != file.DataChecksum {
		return nil, errCorrupt
	}
	return data, nil
}

// toSaved converts a checkpoint. A NUMA node whose number no [device.Mask] has is an error.
func (c *checkpointV2) toSaved() (Saved, error) {
	saved := Saved{Policy: c.PolicyName, Pods: map[string]map[string][]Block{}}
	for id, n := range c.MachineState {
		if n == nil {
			return Saved{}, fmt.Errorf("NUMA node %d is null", id)
		}
		group, err := device.NewMask(n.Cells...)
		if err != nil {
			return Saved{}, err
		}
		node := Node{ID: id, Assignments: n.Assignments, Group: group, Memory: map[string]Amounts{}}
		for name, t := range n.Memory {
			if t == nil {
				return Saved{}, fmt.Errorf("NUMA node %d: %s is null", id, name)
			}
			node.Memory[name] = Amounts(*t)
		}
		saved.Nodes = append(saved.Nodes, node)
	}
	for uid, containers := range c.Entries {
		saved.Pods[uid] = map[string][]Block{}
		for name, list := range containers {
			blocks, err := convertBlocks(list)
			if name == WholePod { // the memory of a pod is in PodEntries
				err = errors.New("it has no name")
			}
			if err != nil {
				return Saved{}, fmt.Errorf("pod %q, container %q: %w", uid, name, err)
			}
			saved.Pods[uid][name] = blocks
		}
		if whole, err := convertBlocks(c.PodEntries[uid].Blocks); err != nil {
			return Saved{}, fmt.Errorf("pod %q: %w", uid, err)
		} else if len(whole) > 0 && len(containers) > 0 {
			saved.Pods[uid][WholePod] = whole
		}
	}
	return saved, saved.normalize()
}

// convertBlocks converts the blocks of a checkpoint. A NUMA node that is listed twice is an error.
func convertBlocks(list []checkpointBlock) ([]Block, error) {
	blocks := make([]Block, 0, len(list))
	for _, b := range list {
		mask, err := device.NewMask(b.Nodes...)
		if err != nil {
			return nil, err
		}
		if mask.Count() != len(b.Nodes) {
			return nil, fmt.Errorf("the NUMA nodes %v are listed twice", b.Nodes)
		}
		blocks = append(blocks, Block{Type: b.Type, Nodes: mask, Size: b.Size})
	}
	return blocks, nil
}

// WriteCheckpoint replaces the file memory_manager_state at path, and creates its directory. A kubelet that replaces the agent reads the memory of
// containers from it. saved is from [Policy.Export]. WriteCheckpoint calls no fsync, and must not be called concurrently. It returns an error, and keeps
// the old file, if a UID or a name is not valid UTF-8. Source: pkg/kubelet/cm/memorymanager/state/checkpoint.go.
func WriteCheckpoint(path string, saved Saved) error {
	content, err := encodeCheckpoint(saved)
	if err == nil {
		err = replaceFile(path, content)
	}
	if err != nil {
		return fmt.Errorf("write checkpoint %s: %w", path, err)
	}
	return nil
}

// encodeCheckpoint returns the content of a checkpoint of version 3.
func encodeCheckpoint(saved Saved) ([]byte, error) {
	data := checkpointV2{PolicyName: saved.Policy, MachineState: checkpointMachine{}, Entries: checkpointEntries{}, PodEntries: map[string]checkpointPod{}}
	for i := range saved.Nodes {
		n := &saved.Nodes[i]
		out := &checkpointNode{Assignments: n.Assignments, Memory: map[string]*checkpointTable{}, Cells: slices.Collect(n.Group.Nodes())}
		for name, a := range n.Memory {
			table := checkpointTable(a)
			out.Memory[name] = &table
		}
		data.MachineState[n.ID] = out
	}
	for uid, containers := range saved.Pods {
		for name, blocks := range containers {
			if !utf8.ValidString(uid) || !utf8.ValidString(name) {
				return nil, fmt.Errorf("pod %q, container %q: a name is not valid UTF-8", uid, name)
			}
			list := []checkpointBlock{}
			for _, b := range blocks {
				list = append(list, checkpointBlock{Nodes: slices.Collect(b.Nodes.Nodes()), Type: b.Type, Size: b.Size})
			}
			if name == WholePod {
				data.PodEntries[uid] = checkpointPod{Blocks: list}
				continue
			}
			if data.Entries[uid] == nil {
				data.Entries[uid] = map[string][]checkpointBlock{}
			}
			data.Entries[uid][name] = list
		}
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	file := checkpointFile{checkpointV1: checkpointV1{PolicyName: data.PolicyName, MachineState: data.MachineState, Entries: data.Entries}}
	file.Data, file.DataChecksum, file.Checksum = string(text), sumText(string(text)), data.checksum(false)
	return json.Marshal(file)
}

// sumText returns the kubelet's checksum of the data of version 3.
func sumText(data string) uint64 {
	h := kubechecksum.New()
	h.Write("(string)", data)
	return h.Sum()
}
