// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// node is the CSI node service.
type node struct {
	csi.UnimplementedNodeServer

	store *store
	id    string
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	answer := &csi.NodeGetCapabilitiesResponse{}
	for _, t := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		answer.Capabilities = append(answer.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}},
		})
	}
	return answer, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.id, MaxVolumesPerNode: 128}, nil
}

// errMissing returns the error for a request without a required field.
func errMissing(what string) error {
	return status.Errorf(codes.InvalidArgument, "%s is missing", what)
}

// requireFields returns an error if a request has no volume or no path.
func requireFields(handle, path, what string) error {
	switch {
	case handle == "":
		return errMissing("the volume ID")
	case path == "":
		return errMissing(what)
	}
	return nil
}

// NodeStageVolume mounts the file system of a volume at the staging path. A block volume gets its loop device.
func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if err := requireFields(r.GetVolumeId(), r.GetStagingTargetPath(), "the staging path"); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability() == nil {
		return nil, errMissing("the volume capability")
	}
	path, _, err := n.store.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		_, err = attachLoop(path, n.store.dir)
	} else {
		err = mountImage(ctx, path, n.store.dir, r.GetStagingTargetPath(), r.GetVolumeCapability().GetMount().GetMountFlags())
	}
	return &csi.NodeStageVolumeResponse{}, err
}

// NodeUnstageVolume unmounts a volume from the staging path and detaches its loop device.
func (n *node) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if err := requireFields(r.GetVolumeId(), r.GetStagingTargetPath(), "the staging path"); err != nil {
		return nil, err
	}
	path, _, err := n.store.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := unmountPath(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, releaseLoop(path)
}

// NodePublishVolume bind-mounts a staged volume at the target path, or creates an inline volume there.
func (n *node) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if err := requireFields(r.GetVolumeId(), r.GetTargetPath(), "the target path"); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability() == nil {
		return nil, errMissing("the volume capability")
	}
	if r.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true" {
		return &csi.NodePublishVolumeResponse{}, n.publishInline(ctx, r)
	}
	path, _, err := n.store.findVolume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		return &csi.NodePublishVolumeResponse{}, n.publishBlock(path, r.GetTargetPath())
	}
	if r.GetStagingTargetPath() == "" {
		return nil, errMissing("the staging path")
	}
	if !isMounted(r.GetStagingTargetPath()) {
		return nil, status.Error(codes.FailedPrecondition, "the volume is not staged")
	}
	return &csi.NodePublishVolumeResponse{}, bindMount(r.GetStagingTargetPath(), r.GetTargetPath(), r.GetReadonly())
}

func (n *node) publishBlock(path, target string) error {
	loop, err := attachLoop(path, n.store.dir)
	if err != nil || isMounted(target) {
		return err
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return unix.Mount(loop, target, "", unix.MS_BIND, "")
}

func (n *node) publishInline(ctx context.Context, r *csi.NodePublishVolumeRequest) error {
	want := int64(defaultSize)
	if text := r.GetVolumeContext()["size"]; text != "" {
		var err error
		if want, err = strconv.ParseInt(text, 10, 64); err != nil || want < minSize || want > maxSize {
			return status.Errorf(codes.InvalidArgument, "size %.64q is no number of bytes from %d to %d", text, minSize, int64(maxSize))
		}
	}
	if _, err := createVolume(n.store.inline(), r.GetVolumeId(), want); err != nil {
		return err
	}
	path, _, err := n.store.findVolume(r.GetVolumeId())
	if err != nil {
		return err
	}
	if err := os.Mkdir(r.GetTargetPath(), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return mountImage(ctx, path, n.store.dir, r.GetTargetPath(), nil)
}

// NodeUnpublishVolume unmounts a volume from the target path, and deletes an inline volume.
func (n *node) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	if err := requireFields(r.GetVolumeId(), r.GetTargetPath(), "the target path"); err != nil {
		return nil, err
	}
	path, inline, err := n.store.findVolume(r.GetVolumeId())
	if status.Code(err) == codes.NotFound && !isMounted(r.GetTargetPath()) {
		if _, err := os.Lstat(r.GetTargetPath()); errors.Is(err, fs.ErrNotExist) && len(r.GetVolumeId()) > 4 && r.GetVolumeId()[:4] == "csi-" {
			return &csi.NodeUnpublishVolumeResponse{}, nil // a deleted inline volume
		}
	}
	if err != nil {
		return nil, err
	}
	if err := unmountPath(r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := os.Remove(r.GetTargetPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if inline {
		return &csi.NodeUnpublishVolumeResponse{}, n.store.removeVolume(path)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// publishedImage returns the file of the volume mounted at a path, and whether it is published as a file system.
func (n *node) publishedImage(handle, at string) (image string, isDir bool, err error) {
	if at == "" {
		return "", false, errMissing("the volume path")
	}
	if image, _, err = n.store.findVolume(handle); err != nil {
		return "", false, err
	}
	if !isMounted(at) {
		return "", false, status.Errorf(codes.NotFound, "nothing is mounted at %s", at)
	}
	info, err := os.Stat(at)
	if err != nil {
		return "", false, err
	}
	return image, info.IsDir(), nil
}

// NodeExpandVolume grows the device and its file system to the size of the file.
func (n *node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	path, isDir, err := n.publishedImage(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if want := r.GetCapacityRange().GetRequiredBytes(); info.Size() < want { // there is no controller on this node
		if want > maxSize {
			return nil, status.Errorf(codes.OutOfRange, "%d bytes cannot be had", want)
		}
		if err := os.Truncate(path, want); err != nil {
			return nil, err
		}
	}
	if err := growLoop(ctx, path, isDir); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: max(info.Size(), r.GetCapacityRange().GetRequiredBytes())}, nil
}

// NodeGetVolumeStats returns the usage of a volume.
func (n *node) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	n.store.mu.Lock()
	defer n.store.mu.Unlock()
	path, isDir, err := n.publishedImage(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	if !isDir {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: info.Size()}}}, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(r.GetVolumePath(), &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", r.GetVolumePath(), err)
	}
	block := st.Bsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * block, Available: int64(st.Bavail) * block, Used: int64(st.Blocks-st.Bfree) * block},
		{Unit: csi.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}}, nil
}
