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

// place is where a volume is staged or published.
type place struct{ kind, handle, path string }

const (
	staged    = "staged"
	published = "published"
)

// size is that of every volume, in bytes.
const size = 1_000_000

// identity is the identity service.
type identity struct {
	csi.UnimplementedIdentityServer

	d *Driver
}

// GetPluginInfo says who the driver is.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: i.d.opts.Name, VendorVersion: "1"}, nil
}

// node is the node service.
type node struct {
	csi.UnimplementedNodeServer

	d *Driver
}

// NodeGetCapabilities says what the driver can do.
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

// NodeGetInfo says what the driver knows of the node.
func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return n.d.opts.NodeInfo, nil
}

func (n *node) can(want csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(n.d.opts.Capabilities, want)
}

// put notes that a volume is at a path; one that is there already is there in the same way. n.d.mu is held.
func (n *node) put(p place, c *csi.VolumeCapability) error {
	if p.handle == "" || p.path == "" || c.GetAccessMode() == nil || c.GetAccessType() == nil {
		return status.Error(codes.InvalidArgument, "handle, path or capability is missing")
	}
	for other := range n.d.state {
		if other.path == p.path && other != p {
			return status.Errorf(codes.AlreadyExists, "%s has volume %s", p.path, other.handle)
		}
	}
	if old := n.d.state[p]; old != nil && !proto.Equal(old, c) {
		return status.Errorf(codes.AlreadyExists, "%s has the volume with another capability", p.path)
	}
	n.d.state[p] = c
	return nil
}

// count returns how often a volume is somewhere. n.d.mu is held.
func (n *node) count(kind, handle string) (found int) {
	for p := range n.d.state {
		if p.kind == kind && p.handle == handle {
			found++
		}
	}
	return found
}

// NodeStageVolume makes a volume ready at a directory that exists.
func (n *node) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if info, err := os.Stat(r.GetStagingTargetPath()); err != nil || !info.IsDir() {
		return nil, status.Errorf(codes.InvalidArgument, "the staging directory is missing: %v", err)
	}
	return &csi.NodeStageVolumeResponse{}, n.put(place{staged, r.GetVolumeId(), r.GetStagingTargetPath()}, r.GetVolumeCapability())
}

// NodeUnstageVolume undoes that, unless the volume is published.
func (n *node) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.count(published, r.GetVolumeId()) > 0 {
		return nil, status.Error(codes.FailedPrecondition, "the volume is published")
	}
	delete(n.d.state, place{staged, r.GetVolumeId(), r.GetStagingTargetPath()})
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume makes a directory, or the file of a block volume, whose parent exists.
func (n *node) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if r.GetStagingTargetPath() != "" && n.can(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME) &&
		n.d.state[place{staged, r.GetVolumeId(), r.GetStagingTargetPath()}] == nil {
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	if err := n.put(place{published, r.GetVolumeId(), r.GetTargetPath()}, r.GetVolumeCapability()); err != nil {
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

// NodeUnpublishVolume removes it.
func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if err := os.RemoveAll(r.GetTargetPath()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	delete(n.d.state, place{published, r.GetVolumeId(), r.GetTargetPath()})
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume says that the volume has grown.
func (n *node) NodeExpandVolume(_ context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.count(published, r.GetVolumeId()) == 0 {
		return nil, status.Error(codes.NotFound, "the volume is not published")
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

// NodeGetVolumeStats says how much a volume that is published takes.
func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	n.d.mu.Lock()
	defer n.d.mu.Unlock()
	if n.d.state[place{published, r.GetVolumeId(), r.GetVolumePath()}] == nil {
		return nil, status.Error(codes.NotFound, "the volume is not published there")
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: size, Used: size / 10, Available: size - size/10},
		{Unit: csi.VolumeUsage_INODES, Total: 100, Used: 1, Available: 99},
	}}, nil
}

// NodeGetVolumeHealth says what is wrong with all volumes.
func (n *node) NodeGetVolumeHealth(context.Context, *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: n.d.opts.Health}, nil
}
