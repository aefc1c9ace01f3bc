// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

func encodeMount(m *cri.Mount) *v1.Mount {
	p := &v1.Mount{
		ContainerPath:     m.ContainerPath,
		HostPath:          m.HostPath,
		Readonly:          m.ReadOnly,
		RecursiveReadOnly: m.RecursiveReadOnly,
		SelinuxRelabel:    m.SELinuxRelabel,
		Propagation:       v1.MountPropagation(m.Propagation),
		UidMappings:       mapSlicePtr(m.UIDMappings, encodeIDMapping),
		GidMappings:       mapSlicePtr(m.GIDMappings, encodeIDMapping),
		ImageSubPath:      m.ImageSubPath,
		MountOptions:      m.Options,
	}
	if m.Image != nil {
		p.Image = EncodeImageSpec(m.Image)
	}
	return p
}

func decodeMount(p *v1.Mount) cri.Mount {
	m := cri.Mount{
		ContainerPath:     p.GetContainerPath(),
		HostPath:          p.GetHostPath(),
		ReadOnly:          p.GetReadonly(),
		RecursiveReadOnly: p.GetRecursiveReadOnly(),
		SELinuxRelabel:    p.GetSelinuxRelabel(),
		Propagation:       decodeEnum[cri.Propagation](p.GetPropagation()),
		UIDMappings:       mapSlice(p.GetUidMappings(), decodeIDMapping),
		GIDMappings:       mapSlice(p.GetGidMappings(), decodeIDMapping),
		ImageSubPath:      p.GetImageSubPath(),
		Options:           p.GetMountOptions(),
	}
	if p.GetImage() != nil {
		image := DecodeImageSpec(p.GetImage())
		m.Image = &image
	}
	return m
}

func encodeIDMapping(m *cri.IDMapping) *v1.IDMapping {
	return &v1.IDMapping{HostId: m.HostID, ContainerId: m.ContainerID, Length: m.Length}
}

func decodeIDMapping(p *v1.IDMapping) cri.IDMapping {
	return cri.IDMapping{HostID: p.GetHostId(), ContainerID: p.GetContainerId(), Length: p.GetLength()}
}
