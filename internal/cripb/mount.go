// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

func encodeMount(mnt *cri.Mount) *v1.Mount {
	p := &v1.Mount{
		ContainerPath:     mnt.ContainerPath,
		HostPath:          mnt.HostPath,
		Readonly:          mnt.ReadOnly,
		RecursiveReadOnly: mnt.RecursiveReadOnly,
		SelinuxRelabel:    mnt.SELinuxRelabel,
		Propagation:       v1.MountPropagation(mnt.Propagation),
		UidMappings:       mapSlicePtr(mnt.UIDMappings, encodeIDMapping),
		GidMappings:       mapSlicePtr(mnt.GIDMappings, encodeIDMapping),
		ImageSubPath:      mnt.ImageSubPath,
		MountOptions:      mnt.Options,
	}
	if mnt.Image != nil {
		p.Image = EncodeImageSpec(mnt.Image)
	}
	return p
}

func decodeMount(msg *v1.Mount) cri.Mount {
	m := cri.Mount{
		ContainerPath:     msg.GetContainerPath(),
		HostPath:          msg.GetHostPath(),
		ReadOnly:          msg.GetReadonly(),
		RecursiveReadOnly: msg.GetRecursiveReadOnly(),
		SELinuxRelabel:    msg.GetSelinuxRelabel(),
		Propagation:       decodeEnum[cri.Propagation](msg.GetPropagation()),
		UIDMappings:       mapSlice(msg.GetUidMappings(), decodeIDMapping),
		GIDMappings:       mapSlice(msg.GetGidMappings(), decodeIDMapping),
		ImageSubPath:      msg.GetImageSubPath(),
		Options:           msg.GetMountOptions(),
	}
	if msg.GetImage() != nil {
		image := DecodeImageSpec(msg.GetImage())
		m.Image = &image
	}
	return m
}

func encodeIDMapping(m *cri.IDMapping) *v1.IDMapping {
	return &v1.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length}
}

func decodeIDMapping(msg *v1.IDMapping) cri.IDMapping {
	return cri.IDMapping{HostID: msg.GetHostId(), ContainerID: msg.GetContainerId(), Length: msg.GetLength()}
}
