// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
	"github.com/seed81659283/nodeagent/internal/record"
)

// Limits of a file.
const (
	maxFile     = 8 << 20 // bytes
	maxElements = 1 << 18 // objects, lists and their elements, each of which needs more memory than it has bytes in the file
	maxSize     = 1 << 62 // bytes of a block
)

// recordFormat returns the first line of a record.
func recordFormat() record.Format {
	return record.Format{Magic: "nodeagent-numa", Version: "1", Content: "memory on NUMA nodes"}
}

// recordFile is the document of a record.
type recordFile struct {
	Policy string       `json:"policy"`
	Nodes  []recordNode `json:"nodes,omitempty"`
	Pods   []recordPod  `json:"pods,omitempty"`
}

type recordNode struct {
	ID          int                      `json:"id"`
	Assignments int                      `json:"assignments,omitempty"`
	Group       device.Mask              `json:"group"`
	Memory      map[string]recordAmounts `json:"memory"`
}

type recordAmounts struct {
	Total          uint64 `json:"total,omitempty"`
	SystemReserved uint64 `json:"systemReserved,omitempty"`
	Allocatable    uint64 `json:"allocatable,omitempty"`
	Reserved       uint64 `json:"reserved,omitempty"`
	Free           uint64 `json:"free,omitempty"`
}

type recordPod struct {
	UID        string            `json:"uid"`
	Containers []recordContainer `json:"containers"`
}

type recordContainer struct {
	Name   string        `json:"name"`
	Blocks []recordBlock `json:"blocks,omitempty"`
}

type recordBlock struct {
	Type  string      `json:"type"`
	Nodes device.Mask `json:"nodes"`
	Size  uint64      `json:"size,omitempty"`
}

// WriteRecord replaces the record at path, and creates its directory. Call it before a container of the pod is created, and not concurrently. saved is
// from [Policy.Save]. WriteRecord calls no fsync: the record survives a kill of the agent, but perhaps not a power failure. After a power failure all
// containers are created anew, and the agent reserves their memory again.
func WriteRecord(path string, saved Saved) error {
	file := recordFile{Policy: saved.Policy}
	for _, n := range saved.Nodes {
		r := recordNode{ID: n.ID, Assignments: n.Assignments, Group: n.Group, Memory: map[string]recordAmounts{}}
		for name, a := range n.Memory {
			r.Memory[name] = recordAmounts(a)
		}
		file.Nodes = append(file.Nodes, r)
	}
	for _, uid := range slices.Sorted(maps.Keys(saved.Pods)) {
		pod := recordPod{UID: uid}
		for _, name := range slices.Sorted(maps.Keys(saved.Pods[uid])) {
			c := recordContainer{Name: name}
			for _, b := range saved.Pods[uid][name] {
				c.Blocks = append(c.Blocks, recordBlock(b))
			}
			pod.Containers = append(pod.Containers, c)
		}
		file.Pods = append(file.Pods, pod)
	}
	doc, err := json.Marshal(file)
	if err == nil {
		err = replaceFile(path, recordFormat().Encode(doc))
	}
	if err != nil {
		return fmt.Errorf("write the record of memory on NUMA nodes: %w", err)
	}
	return nil
}

// replaceFile replaces a file that a restarted agent must be able to read.
func replaceFile(path string, data []byte) error {
	if err := checkSize(data); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := atomicfile.Clean(path); err != nil {
		return err
	}
	return atomicfile.Replace(path, data, 0o600)
}

// checkSize returns an error if a file has too many bytes or elements.
func checkSize(data []byte) error {
	if len(data) > maxFile {
		return fmt.Errorf("it has %d bytes, more than %d", len(data), maxFile)
	}
	elements := 0
	for _, b := range data {
		if b == '{' || b == '[' || b == ',' {
			elements++
		}
	}
	if elements > maxElements {
		return fmt.Errorf("it has %d elements, more than %d", elements, maxElements)
	}
	return nil
}

// ReadRecord reads the record at path. It follows no symbolic link. It returns an error that wraps [fs.ErrNotExist] if the file does not exist, and another
// error if the record is damaged: the caller then renames the file, and continues without memory of the running pods.
//
// [fs.ErrNotExist]: https://pkg.go.dev/io/fs#ErrNotExist
func ReadRecord(path string) (Saved, error) {
	data, err := plainfile.Read(path, maxFile)
	if err != nil {
		if errors.Is(err, plainfile.ErrIrregular) || errors.Is(err, plainfile.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return Saved{}, fmt.Errorf("read the record of memory on NUMA nodes: %w", err)
	}
	saved, err := decodeRecord(data)
	if err != nil {
		return Saved{}, fmt.Errorf("read the record of memory on NUMA nodes: %s: %w: %w", path, errDamaged, err)
	}
	return saved, nil
}

// errDamaged is wrapped by the error of a record that no later start can read.
var errDamaged = errors.New("it is damaged")

// decodeRecord decodes the content of a record.
func decodeRecord(data []byte) (Saved, error) {
	doc, err := recordFormat().Decode(data)
	if err != nil {
		return Saved{}, err
	}
	if err := checkSize(doc); err != nil {
		return Saved{}, err
	}
	var file recordFile
	if err := json.Unmarshal(doc, &file); err != nil {
		return Saved{}, err
	}
	saved := Saved{Policy: file.Policy, Pods: map[string]map[string][]Block{}}
	for _, n := range file.Nodes {
		node := Node{ID: n.ID, Assignments: n.Assignments, Group: n.Group, Memory: map[string]Amounts{}}
		for name, a := range n.Memory {
			node.Memory[name] = Amounts(a)
		}
		saved.Nodes = append(saved.Nodes, node)
	}
	for _, pod := range file.Pods {
		if saved.Pods[pod.UID] != nil {
			return Saved{}, fmt.Errorf("pod %q is recorded twice", pod.UID)
		}
		saved.Pods[pod.UID] = map[string][]Block{}
		for _, c := range pod.Containers {
			blocks := []Block{}
			for _, b := range c.Blocks {
				blocks = append(blocks, Block(b))
			}
			if _, ok := saved.Pods[pod.UID][c.Name]; ok {
				return Saved{}, fmt.Errorf("pod %q: container %q is recorded twice", pod.UID, c.Name)
			}
			saved.Pods[pod.UID][c.Name] = blocks
		}
	}
	return saved, saved.normalize()
}

// normalize sorts nodes and blocks. It returns an error for a pod without UID or containers, and for a block without type or nodes, of the type of another
// block of its container, or of a size that no machine has.
func (s *Saved) normalize() error {
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	for uid, containers := range s.Pods {
		if uid == "" || len(containers) == 0 {
			return fmt.Errorf("pod %q has no UID or no containers", uid)
		}
		for name, blocks := range containers {
			slices.SortFunc(blocks, func(a, b Block) int { return cmp.Compare(a.Type, b.Type) })
			if err := checkBlocks(blocks); err != nil || name == WholePod && len(containers) == 1 {
				return fmt.Errorf("pod %q, container %q: %w", uid, name, cmp.Or(err, errors.New("it has no name")))
			}
		}
	}
	return nil
}

// checkBlocks returns an error if a block of a container is invalid.
func checkBlocks(blocks []Block) error {
	for i, b := range blocks {
		if b.Type == "" || b.Nodes == 0 || b.Size > maxSize || i > 0 && blocks[i-1].Type == b.Type {
			return fmt.Errorf("block %d of type %q on NUMA nodes %s with %d bytes is invalid", i, b.Type, b.Nodes, b.Size)
		}
	}
	return nil
}
