// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strconv"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// volumeCapability returns the VolumeCapability for requests. multiWriter and group, which may be nil, depend on the
// capabilities of the driver.
func (s *volumeSpec) volumeCapability(multiWriter bool, group *int64) *csi.VolumeCapability {
	// multiWriter requires SINGLE_NODE_MULTI_WRITER, group VOLUME_MOUNT_GROUP.
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(s.accessMode, multiWriter)}}
	if s.block {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c
	}
	m := &csi.VolumeCapability_MountVolume{FsType: s.fsType, MountFlags: s.mountOptions}
	if group != nil {
		m.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: m}
	return c
}

// accessMode converts the access mode of a PV for CSI. A multiWriter driver distinguishes ReadWriteOnce from ReadWriteOncePod
// (SINGLE_NODE_MULTI_WRITER).
func accessMode(mode corev1.PersistentVolumeAccessMode, multiWriter bool) csi.VolumeCapability_AccessMode_Mode {
	switch {
	case mode == corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOnce && multiWriter:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == corev1.ReadWriteOncePod && multiWriter:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod:
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	default:
		return csi.VolumeCapability_AccessMode_UNKNOWN
	}
}

// callParams are the parameters of a call to a driver that do not come from the volumeSpec alone.
type callParams struct {
	can            capabilities
	group          *int64 // fsGroup of the pod, for drivers with VOLUME_MOUNT_GROUP; nil: none
	publishContext map[string]string
	attributes     map[string]string // volume attributes, with pod info and tokens
	secrets        map[string]string
	redact         []string // values that errors must not contain
}

// stageRequest returns the request to stage the volume. path is the staging directory of the volume.
func (s *volumeSpec) stageRequest(path string, params callParams) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: s.handle, PublishContext: params.publishContext, StagingTargetPath: path, Secrets: params.secrets, VolumeContext: s.attributes,
		VolumeCapability: s.volumeCapability(params.can[canMultiWriter], params.group),
	}
}

// publishRequest returns the request to publish the volume at path. stagingPath is empty if the volume is not staged.
func (s *volumeSpec) publishRequest(path, stagingPath string, params callParams) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: s.handle, PublishContext: params.publishContext, StagingTargetPath: stagingPath, TargetPath: path, Readonly: s.readOnly,
		Secrets: params.secrets, VolumeContext: params.attributes, VolumeCapability: s.volumeCapability(params.can[canMultiWriter], params.group),
	}
}

// expandRequest returns the request to expand the volume, published at path, to a size in bytes. stagingPath may be empty.
func (s *volumeSpec) expandRequest(path, stagingPath string, size int64, params callParams) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: s.handle, VolumePath: path, StagingTargetPath: stagingPath, Secrets: params.secrets,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: s.volumeCapability(params.can[canMultiWriter], nil),
	}
}
