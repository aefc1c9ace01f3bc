// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strconv"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// capability returns how a volume is to be used. The group is that of VOLUME_MOUNT_GROUP; nil: none.
func (s *volumeSpec) capability(multiWriter bool, group *int64) *csi.VolumeCapability {
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

// accessMode returns a mode as drivers know it: those with SINGLE_NODE_MULTI_WRITER know whether one pod or several of a node write.
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

// use is what a call is told beside the volume itself.
type use struct {
	can            capabilities
	group          *int64 // of the pod's files, where the driver gives it to them
	publishContext map[string]string
	attributes     map[string]string // those of the volume, and more
	secrets        map[string]string
	hide           []string // that errors must not repeat
}

// stageRequest is the request that makes a volume ready at a path.
func (s *volumeSpec) stageRequest(at string, u use) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: s.handle, PublishContext: u.publishContext, StagingTargetPath: at, Secrets: u.secrets, VolumeContext: s.attributes,
		VolumeCapability: s.capability(u.can[multiWriter], u.group),
	}
}

// publishRequest is the request that gives a volume to a pod at a path.
func (s *volumeSpec) publishRequest(at, staged string, u use) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: s.handle, PublishContext: u.publishContext, StagingTargetPath: staged, TargetPath: at, Readonly: s.readOnly,
		Secrets: u.secrets, VolumeContext: u.attributes, VolumeCapability: s.capability(u.can[multiWriter], u.group),
	}
}

// expandRequest is the request that lets a volume grow to a size.
func (s *volumeSpec) expandRequest(at, staged string, size int64, u use) *csi.NodeExpandVolumeRequest {
	return &csi.NodeExpandVolumeRequest{
		VolumeId: s.handle, VolumePath: at, StagingTargetPath: staged, Secrets: u.secrets,
		CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: s.capability(u.can[multiWriter], nil),
	}
}
