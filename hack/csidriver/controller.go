// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// controller is the CSI controller service. Volumes are files, and nothing is attached.
type controller struct {
	csi.UnimplementedControllerServer

	store *store
	node  *node
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}},
		})
	}
	return answer, nil
}

// volumeSize returns the size in bytes of a volume for a requested capacity range.
func volumeSize(r *csi.CapacityRange) (int64, error) {
	want := max(r.GetRequiredBytes(), minSize)
	if r.GetRequiredBytes() == 0 {
		want = defaultSize
		if limit := r.GetLimitBytes(); limit > 0 {
			want = min(want, limit)
		}
	}
	if limit := r.GetLimitBytes(); want > maxSize || limit > 0 && want > limit {
		return 0, status.Errorf(codes.OutOfRange, "%d bytes cannot be had", want)
	}
	return want, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if r.GetName() == "" || len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name and volume capabilities are needed")
	}
	want, err := volumeSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	have, err := createVolume(c.store.volumes(), r.GetName(), want)
	if err != nil {
		return nil, err
	}
	if limit := r.GetCapacityRange().GetLimitBytes(); have < r.GetCapacityRange().GetRequiredBytes() || limit > 0 && have > limit {
		return nil, status.Errorf(codes.AlreadyExists, "volume %s has %d bytes", r.GetName(), have)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: r.GetName(), CapacityBytes: have, VolumeContext: r.GetParameters()}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	path, _, err := c.store.findVolume(r.GetVolumeId())
	switch status.Code(err) {
	case codes.NotFound:
		return &csi.DeleteVolumeResponse{}, nil
	case codes.OK:
	default:
		return nil, err
	}
	if err := c.store.removeVolume(path); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume capabilities are needed")
	}
	if _, _, err := c.store.findVolume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	for _, want := range r.GetVolumeCapabilities() {
		switch want.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		default:
			return &csi.ValidateVolumeCapabilitiesResponse{Message: fmt.Sprintf("access mode %v is that of several nodes", want.GetAccessMode().GetMode())}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities()},
	}, nil
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if r.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "the capacity range is missing")
	}
	path, _, err := c.store.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	want, err := volumeSize(r.GetCapacityRange())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() >= want {
		want = info.Size()
	} else if err := os.Truncate(path, want); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: want, NodeExpansionRequired: true}, nil
}
