// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// EncodeImageSpec converts the reference of an image to a CRI message.
func EncodeImageSpec(spec *cri.ImageSpec) *v1.ImageSpec {
	return &v1.ImageSpec{
		Image:              spec.Image,
		UserSpecifiedImage: spec.UserSpecifiedImage,
		Annotations:        spec.Annotations,
		RuntimeHandler:     spec.RuntimeHandler,
		ImageRef:           spec.ImageRef,
	}
}

// DecodeImageSpec converts the CRI message msg to the reference of an image.
func DecodeImageSpec(msg *v1.ImageSpec) cri.ImageSpec {
	return cri.ImageSpec{
		Image:              msg.GetImage(),
		UserSpecifiedImage: msg.GetUserSpecifiedImage(),
		Annotations:        msg.GetAnnotations(),
		RuntimeHandler:     msg.GetRuntimeHandler(),
		ImageRef:           msg.GetImageRef(),
	}
}

// EncodeImage converts an image to a CRI message.
func EncodeImage(image *cri.Image) *v1.Image {
	return &v1.Image{
		Id:          image.ID,
		RepoTags:    image.RepoTags,
		RepoDigests: image.RepoDigests,
		Size:        image.Size,
		Uid:         encodeInt64(image.UID),
		Username:    image.Username,
		Spec:        EncodeImageSpec(&image.Spec),
		Pinned:      image.Pinned,
	}
}

// DecodeImage converts the CRI message msg to an image.
func DecodeImage(msg *v1.Image) cri.Image {
	return cri.Image{
		ID:          msg.GetId(),
		RepoTags:    msg.GetRepoTags(),
		RepoDigests: msg.GetRepoDigests(),
		Size:        msg.GetSize(),
		UID:         decodeInt64(msg.GetUid()),
		Username:    msg.GetUsername(),
		Spec:        DecodeImageSpec(msg.GetSpec()),
		Pinned:      msg.GetPinned(),
	}
}

// EncodeAuth converts a registry credential to a CRI message. A nil credential becomes nil.
func EncodeAuth(auth *cri.Auth) *v1.AuthConfig {
	if auth == nil {
		return nil
	}
	return &v1.AuthConfig{
		Username:      auth.Username,
		Password:      auth.Password,
		Auth:          auth.Auth,
		ServerAddress: auth.ServerAddress,
		IdentityToken: auth.IdentityToken,
		RegistryToken: auth.RegistryToken,
	}
}

// DecodeAuth converts the CRI message msg to a registry credential. A nil message becomes nil.
func DecodeAuth(msg *v1.AuthConfig) *cri.Auth {
	if msg == nil {
		return nil
	}
	return &cri.Auth{
		Username:      msg.GetUsername(),
		Password:      msg.GetPassword(),
		Auth:          msg.GetAuth(),
		ServerAddress: msg.GetServerAddress(),
		IdentityToken: msg.GetIdentityToken(),
		RegistryToken: msg.GetRegistryToken(),
	}
}

// EncodeImageUsage converts the usage of the runtime's image file systems to a CRI message.
func EncodeImageUsage(usage *cri.ImageUsage) *v1.ImageFsInfoResponse {
	return &v1.ImageFsInfoResponse{
		ImageFilesystems:     mapSlicePtr(usage.Images, encodeFilesystem),
		ContainerFilesystems: mapSlicePtr(usage.Containers, encodeFilesystem),
	}
}

// DecodeImageUsage converts the CRI message msg to the usage of the runtime's image file systems.
func DecodeImageUsage(msg *v1.ImageFsInfoResponse) cri.ImageUsage {
	return cri.ImageUsage{
		Images:     mapSlice(msg.GetImageFilesystems(), decodeFilesystem),
		Containers: mapSlice(msg.GetContainerFilesystems(), decodeFilesystem),
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

func decodeFilesystem(msg *v1.FilesystemUsage) cri.FilesystemUsage {
	return cri.FilesystemUsage{
		Time:       decodeTime(msg.GetTimestamp()),
		Mountpoint: msg.GetFsId().GetMountpoint(),
		UsedBytes:  decodeUint64(msg.GetUsedBytes()),
		InodesUsed: decodeUint64(msg.GetInodesUsed()),
	}
}
