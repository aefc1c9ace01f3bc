// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/atomicfile"
)

// ExportTo returns a device.Options.Export that replaces the file kubelet_internal_checkpoint at path, from which a kubelet that takes the node over
// reads who holds devices. The function creates the directory of path, and must not be called concurrently. Of the healthy IDs by resource, the kubelet
// reads the names of the resources only.
//
// A claim without Response is written with an empty one, so that the kubelet gives its devices to no other pod. If the healthy IDs take too many bytes,
// they are omitted. An error names the claim that does not fit, or an ID that is not valid UTF-8; the file then has its old content. Source:
// pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go, toCheckpointData in pkg/kubelet/cm/devicemanager/pod_devices.go.
func ExportTo(path string) func(claims []device.Claim, healthy map[string][]string) error {
	return func(claims []device.Claim, healthy map[string][]string) error {
		content, err := encodeCheckpoint(claims, healthy)
		if err != nil {
			return fmt.Errorf("write checkpoint %s: %w", path, err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("write checkpoint %s: %w", path, err)
		}
		if err := atomicfile.Clean(path); err != nil {
			return err
		}
		return atomicfile.Replace(path, content, 0o600) // a power failure ends the containers with the devices
	}
}

// encodeCheckpoint returns the content of a checkpoint.
func encodeCheckpoint(claims []device.Claim, healthy map[string][]string) ([]byte, error) {
	if len(healthy) > maxResources || len(claims) > maxClaims {
		return nil, fmt.Errorf("%d resources and %d claims, more than %d or %d", len(healthy), len(claims), maxResources, maxClaims)
	}
	file := checkpointFile{Data: checkpointData{RegisteredDevices: make(map[string][]string, len(healthy))}}
	size := 0
	for i := range claims {
		entry, err := encodeClaim(&claims[i])
		if err != nil {
			return nil, fmt.Errorf("pod %s, container %s, resource %s: %w", claims[i].PodUID, claims[i].Container, claims[i].Resource, err)
		}
		if size += entry.estimateSize(); size > maxCheckpoint {
			return nil, fmt.Errorf("pod %s, container %s, resource %s: the checkpoint has more than %d bytes", entry.PodUID, entry.ContainerName, entry.ResourceName, maxCheckpoint)
		}
		file.Data.PodDeviceEntries = append(file.Data.PodDeviceEntries, entry)
	}
	for _, ids := range healthy {
		size += estimateListSize(ids)
	}
	for resource, ids := range healthy {
		file.Data.RegisteredDevices[resource] = []string{}
		if size <= maxCheckpoint && !slices.ContainsFunc(ids, isInvalid) {
			file.Data.RegisteredDevices[resource] = append([]string{}, ids...)
		}
	}
	file.Checksum = file.Data.checksum()
	content, err := json.Marshal(file)
	if err == nil && len(content) > maxCheckpoint {
		err = fmt.Errorf("it has %d bytes, more than %d", len(content), maxCheckpoint)
	}
	return content, err
}

// isInvalid reports whether JSON would change a text, so that the checksum would not match.
func isInvalid(text string) bool { return !utf8.ValidString(text) }

// encodeClaim returns the entry of a claim.
func encodeClaim(c *device.Claim) (checkpointEntry, error) {
	e := checkpointEntry{PodUID: c.PodUID, ContainerName: c.Container, ResourceName: c.Resource, DeviceIDs: map[int64][]string{}}
	texts := []string{c.PodUID, c.Container, c.Resource}
	for i := range c.Devices {
		d := &c.Devices[i]
		texts = append(texts, d.ID)
		if d.Nodes == 0 {
			e.DeviceIDs[noNode] = append(e.DeviceIDs[noNode], d.ID)
		}
		for node := range d.Nodes.Nodes() {
			e.DeviceIDs[int64(node)] = append(e.DeviceIDs[int64(node)], d.ID)
		}
	}
	if at := slices.IndexFunc(texts, isInvalid); at >= 0 {
		return checkpointEntry{}, fmt.Errorf("%q is not valid UTF-8", texts[at])
	}
	var err error
	if e.AllocResp, err = (proto.MarshalOptions{Deterministic: true}).Marshal(toAPIResponse(c.Response)); err != nil {
		return checkpointEntry{}, fmt.Errorf("encode the response of Allocate: %w", err)
	}
	if len(e.AllocResp) > maxStored {
		return checkpointEntry{}, fmt.Errorf("the response of Allocate has %d bytes, more than %d", len(e.AllocResp), maxStored)
	}
	return e, nil
}

// estimateSize returns about the number of bytes of an entry in the file.
func (e *checkpointEntry) estimateSize() int {
	const names = 100 // bytes of the names of the fields
	size := names + len(e.PodUID) + len(e.ContainerName) + len(e.ResourceName) + len(e.AllocResp)/3*4
	for _, ids := range e.DeviceIDs {
		size += estimateListSize(ids)
	}
	return size
}

// estimateListSize returns about the number of bytes of a list of IDs in the file.
func estimateListSize(ids []string) (size int) {
	for _, id := range ids {
		size += len(id) + len(`"",`)
	}
	return size
}

// toAPIResponse returns a response in the form of the device plugin API. A nil response is empty.
func toAPIResponse(r *device.Response) *api.ContainerAllocateResponse {
	out := &api.ContainerAllocateResponse{}
	if r == nil {
		return out
	}
	out.Envs, out.Annotations = r.Env, r.Annotations
	for i := range r.Mounts {
		m := &r.Mounts[i]
		out.Mounts = append(out.Mounts, &api.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, d := range r.Devices {
		out.Devices = append(out.Devices, toAPIDevice(d))
	}
	for _, name := range r.CDIDevices {
		out.CdiDevices = append(out.CdiDevices, &api.CDIDevice{Name: name})
	}
	return out
}

func toAPIDevice(d cri.Device) *api.DeviceSpec {
	return &api.DeviceSpec{ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions}
}
