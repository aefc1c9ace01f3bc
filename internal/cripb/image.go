// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeImageSpec encodes the reference of an image.
func EncodeImageSpec(s *cri.ImageSpec) *v1.ImageSpec {
	return &v1.ImageSpec{
		Image:              s.Image,
		UserSpecifiedImage: s.UserSpecifiedImage,
		Annotations:        s.Annotations,
		RuntimeHandler:     s.RuntimeHandler,
		ImageRef:           s.ImageRef,
	}
}

// DecodeImageSpec decodes the reference of an image.
func DecodeImageSpec(p *v1.ImageSpec) cri.ImageSpec {
	return cri.ImageSpec{
		Image:              p.GetImage(),
		UserSpecifiedImage: p.GetUserSpecifiedImage(),
		Annotations:        p.GetAnnotations(),
		RuntimeHandler:     p.GetRuntimeHandler(),
		ImageRef:           p.GetImageRef(),
	}
}

// EncodeImage encodes an image.
func EncodeImage(i *cri.Image) *v1.Image {
	return &v1.Image{
		Id:          i.ID,
		RepoTags:    i.RepoTags,
		RepoDigests: i.RepoDigests,
		Size:        i.Size,
		Uid:         encodeInt64(i.UID),
		Username:    i.Username,
		Spec:        EncodeImageSpec(&i.Spec),
		Pinned:      i.Pinned,
	}
}

// DecodeImage decodes an image.
func DecodeImage(p *v1.Image) cri.Image {
	return cri.Image{
		ID:          p.GetId(),
		RepoTags:    p.GetRepoTags(),
		RepoDigests: p.GetRepoDigests(),
		Size:        p.GetSize(),
		UID:         decodeInt64(p.GetUid()),
		Username:    p.GetUsername(),
		Spec:        DecodeImageSpec(p.GetSpec()),
		Pinned:      p.GetPinned(),
	}
}

// EncodeAuth encodes a registry credential. nil stays nil.
func EncodeAuth(a *cri.Auth) *v1.AuthConfig {
	if a == nil {
		return nil
	}
	return &v1.AuthConfig{
		Username:      a.Username,
		Password:      a.Password,
		Auth:          a.Auth,
		ServerAddress: a.ServerAddress,
		IdentityToken: a.IdentityToken,
		RegistryToken: a.RegistryToken,
	}
}

// DecodeAuth decodes a registry credential. nil stays nil.
func DecodeAuth(p *v1.AuthConfig) *cri.Auth {
	if p == nil {
		return nil
	}
	return &cri.Auth{
		Username:      p.GetUsername(),
		Password:      p.GetPassword(),
		Auth:          p.GetAuth(),
		ServerAddress: p.GetServerAddress(),
		IdentityToken: p.GetIdentityToken(),
		RegistryToken: p.GetRegistryToken(),
	}
}

// EncodeImageUsage encodes the usage of the runtime's image file systems.
func EncodeImageUsage(u *cri.ImageUsage) *v1.ImageFsInfoResponse {
	return &v1.ImageFsInfoResponse{
		ImageFilesystems:     mapSlicePtr(u.Images, encodeFilesystem),
		ContainerFilesystems: mapSlicePtr(u.Containers, encodeFilesystem),
	}
}

// DecodeImageUsage decodes the usage of the runtime's image file systems.
func DecodeImageUsage(p *v1.ImageFsInfoResponse) cri.ImageUsage {
	return cri.ImageUsage{
		Images:     mapSlice(p.GetImageFilesystems(), decodeFilesystem),
		Containers: mapSlice(p.GetContainerFilesystems(), decodeFilesystem),
	}
}

func encodeFilesystem(u *cri.FilesystemUsage) *v1.FilesystemUsage {
	return &v1.FilesystemUsage{
		Timestamp:  encodeTime(u.Time),
		FsId:       &v1.FilesystemIdentifier{Mountpoint: u.Mountpoint},
		UsedBytes:  encodeUint64(u.UsedBytes),
		InodesUsed: encodeUint64(u.InodesUsed),
	}
}

func decodeFilesystem(p *v1.FilesystemUsage) cri.FilesystemUsage {
	return cri.FilesystemUsage{
		Time:       decodeTime(p.GetTimestamp()),
		Mountpoint: p.GetFsId().GetMountpoint(),
		UsedBytes:  decodeUint64(p.GetUsedBytes()),
		InodesUsed: decodeUint64(p.GetInodesUsed()),
	}
}
