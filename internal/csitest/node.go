// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csitest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// mountPoint is a path at which a volume is staged or published.
type mountPoint struct{ kind, handle, path string }

const (
	staged    = "staged"
	published = "published"
)

// volumeSize is the size of every volume in bytes.
const volumeSize = 1_000_000

// identity implements the CSI identity service of a [Driver].
type identity struct {
	csi.UnimplementedIdentityServer

	d *Driver
}

// GetPluginInfo returns the name of the driver.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.d.opts.Name, VendorVersion: "1"}, nil
}

// node implements the CSI node service of a [Driver].
type node struct {
	csi.UnimplementedNodeServer

	d *Driver
}

// NodeGetCapabilities returns the capabilities of the driver.
func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	for _, c := range n.d.opts.Capabilities {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return answer, nil
}

// NodeGetInfo returns Options.NodeInfo.
func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return n.d.opts.NodeInfo, nil
}

func (n *node) hasCapability(capability csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(n.d.opts.Capabilities, capability)
}

// addMountPoint records that a volume is staged or published at point.path. A different volume or capability there is an
// error. The caller holds n.d.mu.
func (n *node) addMountPoint(point mountPoint, c *csi.VolumeCapability) error {
	if point.handle == "" || point.path == "" || c.GetAccessMode() == nil || c.GetAccessType() == nil {
		return status.Error(codes.InvalidArgument, "handle, path or capability is missing")
	}
	for other := range n.d.state {
		if other.path == point.path && other != point {
			return status.Errorf(codes.AlreadyExists, "%s has volume %s", point.path, other.handle)
		}
	}
	if old := n.d.state[point]; old != nil && !proto.Equal(old, c) {
		return status.Errorf(codes.AlreadyExists, "%s has the volume with another capability", point.path)
	}
	n.d.state[point] = c
	return nil
}

// countMountPoints returns the number of paths at which the volume called handle is staged or published. kind selects
// "staged" or "published" paths. The caller holds n.d.mu.
func (n *node) countMountPoints(kind, handle string) (found int) {
	for p := range n.d.state {
		if p.kind == kind && p.handle == handle {
			found++
		}
	}
	return found
}

// NodeStageVolume records the volume as staged at the staging directory of r. It fails if the directory does not exist.
func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if info, err := os.Stat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
		return nil, status.Errorf(codes.InvalidArgument, "the staging directory is missing: %v", err)
	}
	return &csi.NodeStageVolumeResponse{}, n.addMountPoint(mountPoint{staged, r.GetVolumeId(), r.GetStagingTargetPath()}, r.GetVolumeCapability())
}

// NodeUnstageVolume removes the record of the staged volume. It fails while the volume is published.
func (n *node) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.countMountPoints(published, r.GetVolumeId()) > 0 {
		return nil, status.Error(codes.FailedPrecondition, "the volume is published")
	}
	delete(n.d.state, mountPoint{staged, r.GetVolumeId(), r.GetStagingTargetPath()})
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume records the volume as published, and creates the target: a file for a block volume, else a directory. The
// parent directory of the target must exist.
func (n *node) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if r.GetStagingTargetPath() != "" && n.hasCapability(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) &&
		n.d.state[mountPoint{staged, r.GetVolumeId(), r.GetStagingTargetPath()}] == nil {
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	if err := n.addMountPoint(mountPoint{published, r.GetVolumeId(), r.GetTargetPath()}, r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	var err error
	if r.GetVolumeCapability().GetBlock() != nil {
		var f *os.File
		if f, err = os.OpenFile(r.GetTargetPath(), os.O_CREATE, 0o600); err == nil {
			err = f.Close()
		}
	} else {
		err = os.Mkdir(r.GetTargetPath(), 0o777)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume removes the target, which is a directory or a file, and the record of the published volume.
func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if err := os.RemoveAll(r.GetTargetPath()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(n.d.state, mountPoint{published, r.GetVolumeId(), r.GetTargetPath()})
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume returns the requested size as the new size of a published volume. It fails if the volume is not published.
func (n *node) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.countMountPoints(published, r.GetVolumeId()) == 0 {
		return nil, status.Error(codes.NotFound, "the volume is not published")
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// NodeGetVolumeStats returns the same fixed usage for each published volume.
func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.d.state[mountPoint{published, r.GetVolumeId(), r.GetVolumePath()}] == nil {
		return nil, status.Error(codes.NotFound, "the volume is not published there")
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: volumeSize, Used: volumeSize / 10, Available: volumeSize - volumeSize/10},
		{Unit: csi.VolumeUsage_INODES, Total: 100, Used: 1, Available: 99},
	}}, nil
}

// NodeGetVolumeHealth returns Options.Health.
func (n *node) NodeGetVolumeHealth(context.Context, *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: n.d.opts.Health}, nil
}
