// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubeletstate reads and writes the kubelet's files with the resources allocated to pods, so that in-place resizes continue when agent and kubelet
// take a node over from each other. It decides about no resize.
//
//	s := kubeletstate.Open("/var/lib/kubelet", podsDir, logger)
//	allocated := s.Allocation(uid)        // of a pod that a kubelet has admitted; nil: unknown
//	s.Set(uid, allocatedPod, actualPod)   // after each decision
//	err := s.Run(ctx)                     // writes the files
//
// # Model
//
// The file allocated_pods_state has the resources that the node has allocated to each pod, and actuated_pods_state those that its containers have. They
// differ while a resize is in progress. A [Store] keeps the entries of pods that are not set yet, unless their directory is gone.
//
// # Concurrency
//
// The methods may be called from any goroutine. A nil *Store has no entries, and ignores calls. Run is called once.
//
// # Errors
//
// Errors are logged. A file that cannot be read is replaced: a kubelet does not start with a damaged one. A failed write is repeated.
//
// Test kit: none is needed; a temporary directory is real.
package kubeletstate

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// Names of the files in the kubelet's root directory. Source: pkg/kubelet/allocation/allocation_manager.go,
// pkg/kubelet/kuberuntime/kuberuntime_manager.go.
const (
	AllocatedName = "allocated_pods_state"
	ActuatedName  = "actuated_pods_state"
)

// maxFile limits the size of a file in bytes. A pod of one container takes about 300 bytes.
const maxFile = 16 << 20

// Info has the resources of a pod in the form of the kubelet. Source: pkg/kubelet/allocation/state/state.go.
type Info struct {
	ContainerResources   map[string]corev1.ResourceRequirements // of init and regular containers, by name
	PodLevelResources    *corev1.ResourceRequirements           // nil: the pod has none
	EmptyDirVolumeLimits map[string]*resource.Quantity          // nil: the kubelet's feature gate is off
}

// checkpoint is the content of a file. Source: pkg/kubelet/allocation/state/checkpoint.go.
type checkpoint struct {
	Data     string `json:"data"` // entries as JSON
	Checksum uint64 `json:"checksum"`
}

// entries are the pods in a file: [Info] as JSON, by UID.
type entries struct {
	Entries map[string]json.RawMessage `json:"entries,omitempty"`
}

// computeChecksum returns the kubelet's checksum: FNV-32a of a dump of the text. Source: pkg/kubelet/checkpointmanager/checksum.
func computeChecksum(data string) uint64 {
	sum := fnv.New32a()
	_, _ = io.WriteString(sum, "(string)"+data) // a hash never fails
	return uint64(sum.Sum32())
}

// readFile returns the entries of the file at path by UID. A missing file has none.
func readFile(path string) (map[string]json.RawMessage, error) {
	content, err := plainfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]json.RawMessage{}, nil
	}
	if err != nil {
		return nil, err
	}
	var file checkpoint
	if err := json.Unmarshal(content, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if sum := computeChecksum(file.Data); sum != file.Checksum {
		return nil, fmt.Errorf("read %s: the checksum is %d, not %d: the file is damaged", path, sum, file.Checksum)
	}
	data := entries{Entries: map[string]json.RawMessage{}}
	if err := json.Unmarshal([]byte(file.Data), &data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if data.Entries == nil {
		data.Entries = map[string]json.RawMessage{}
	}
	return data.Entries, nil
}

// writeFile replaces the file at path, and returns when it is on disk: a kubelet does not start with a file that is empty after a power failure.
func writeFile(path string, pods map[string]json.RawMessage) error {
	data, err := json.Marshal(entries{Entries: pods})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	content, err := json.Marshal(checkpoint{Data: string(data), Checksum: computeChecksum(string(data))})
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("it has %d bytes, more than %d", len(content), maxFile)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return atomicfile.WriteFile(path, content, 0o600)
}
