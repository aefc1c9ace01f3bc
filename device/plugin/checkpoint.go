// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// CheckpointName is the name of the kubelet's file with allocated devices, in the directory of kubelet.sock.
const CheckpointName = "kubelet_internal_checkpoint"

// Limits of a checkpoint.
const (
	maxCheckpoint = 16 << 20 // bytes
	maxStored     = 4 << 20  // bytes of a stored response, as in the kubelet
	maxClaims     = 1 << 16
	maxResources  = 1024
)

// checkpointFile is the file of a kubelet. Source: pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go.
type checkpointFile struct {
	Data     checkpointData
	Checksum uint64
}

type checkpointData struct {
	PodDeviceEntries  checkpointEntries
	RegisteredDevices map[string][]string // healthy IDs by resource
}

type checkpointEntry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[int64][]string // by NUMA node
	AllocResp     []byte             // marshalled ContainerAllocateResponse
}

// checkpointEntries limits the number of entries while it decodes them, because an empty entry has few bytes in the file.
type checkpointEntries []checkpointEntry

// UnmarshalJSON decodes at most maxClaims entries.
func (e *checkpointEntries) UnmarshalJSON(data []byte) error {
	*e = nil
	if string(data) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return errors.Join(errors.New("PodDeviceEntries is no list"), err)
	}
	*e = checkpointEntries{}
	for decoder.More() {
		var entry checkpointEntry
		if err := decoder.Decode(&entry); err != nil {
			return err
		}
		if *e = append(*e, entry); len(*e) > maxClaims {
			return fmt.Errorf("more than %d entries", maxClaims)
		}
	}
	return nil
}

// ReadCheckpoint reads the file kubelet_internal_checkpoint at path. It verifies the checksum as the kubelet does, follows no symbolic link, and
// writes nothing. Claims are sorted by pod, container and resource. If two claims have the same container and resource, the last is used.
//
// A claim whose stored response is invalid or empty has a nil Response, and keeps its devices: [ExportTo] writes an unknown response as an empty one,
// and a kubelet keeps it. NUMA nodes above 63 are omitted. A file that does not exist is
// an error that wraps [fs.ErrNotExist]. Source: pkg/kubelet/cm/devicemanager/pod_devices.go, readCheckpoint in manager.go.
//
// [fs.ErrNotExist]: https://pkg.go.dev/io/fs#ErrNotExist
func ReadCheckpoint(path string) (device.Previous, error) {
	data, err := plainfile.Read(path, maxCheckpoint)
	if err != nil {
		return device.Previous{}, err
	}
	previous, err := parseCheckpoint(data)
	if err != nil {
		return device.Previous{}, fmt.Errorf("read checkpoint %s: %w", path, err)
	}
	return previous, nil
}

// parseCheckpoint returns the claims and the resource names in content, the bytes of a checkpoint file.
func parseCheckpoint(content []byte) (device.Previous, error) {
	var file checkpointFile
	if err := json.Unmarshal(content, &file); err != nil {
		return device.Previous{}, err
	}
	if sum := file.Data.checksum(); sum != file.Checksum {
		return device.Previous{}, fmt.Errorf("the checksum is %d, not %d: the file is damaged", sum, file.Checksum)
	}
	resources := file.Data.RegisteredDevices
	if len(resources) > maxResources {
		return device.Previous{}, fmt.Errorf("%d resources, more than %d", len(resources), maxResources)
	}
	healthy := map[string]map[string]bool{}
	for name, ids := range resources {
		healthy[name] = make(map[string]bool, len(ids))
		for _, id := range ids {
			healthy[name][id] = true
		}
	}
	claims := map[[3]string]device.Claim{}
	for i := range file.Data.PodDeviceEntries {
		e := &file.Data.PodDeviceEntries[i]
		if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
			return device.Previous{}, fmt.Errorf("entry %d: PodUID %q, ContainerName %q or ResourceName %q is empty", i, e.PodUID, e.ContainerName, e.ResourceName)
		}
		claims[[3]string{e.PodUID, e.ContainerName, e.ResourceName}] = e.toClaim(healthy[e.ResourceName])
	}
	keys := slices.SortedFunc(maps.Keys(claims), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
	previous := device.Previous{Resources: slices.Sorted(maps.Keys(resources))}
	for _, key := range keys {
		previous.Claims = append(previous.Claims, claims[key])
	}
	return previous, nil
}

// toClaim returns the claim of an entry. healthy has the healthy IDs of the resource.
func (e *checkpointEntry) toClaim(healthy map[string]bool) device.Claim {
	nodes := map[string]device.Mask{}
	for node, ids := range e.DeviceIDs {
		var mask device.Mask
		if node >= 0 && node < 64 {
			mask = 1 << node
		}
		for _, id := range ids {
			nodes[id] |= mask
		}
	}
	c := device.Claim{PodUID: e.PodUID, Container: e.ContainerName, Resource: e.ResourceName}
	for id, mask := range nodes {
		c.Devices = append(c.Devices, device.Device{ID: id, Healthy: healthy[id], Nodes: mask})
	}
	slices.SortFunc(c.Devices, func(a, b device.Device) int { return strings.Compare(a.ID, b.ID) })
	var stored api.ContainerAllocateResponse
	if size := len(e.AllocResp); size > 0 && size <= maxStored && proto.Unmarshal(e.AllocResp, &stored) == nil {
		if response, err := convertResponse(&stored); err == nil {
			c.Response = &response
		}
	}
	return c
}
