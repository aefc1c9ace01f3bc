// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// ListImages returns every image in the runtime's store.
func (c *Client) ListImages(ctx context.Context) ([]cri.Image, error) {
	r, err := invoke(ctx, c, callInfo{name: "ListImages"}, c.images.ListImages, &v1.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetImages(), cripb.DecodeImage), nil
}

// ImageStatus returns the image with this reference or ID. If it does not exist, the error wraps [cri.ErrNotFound].
func (c *Client) ImageStatus(ctx context.Context, image cri.ImageSpec) (cri.Image, error) {
	o := callInfo{name: "ImageStatus", id: image.Image}
	r, err := invoke(ctx, c, o, c.images.ImageStatus, &v1.ImageStatusRequest{Image: cripb.EncodeImageSpec(&image)})
	if err != nil {
		return cri.Image{}, err
	}
	if r.GetImage() == nil {
		return cri.Image{}, o.wrapError(cri.ErrNotFound)
	}
	i := cripb.DecodeImage(r.GetImage())
	return i, o.requireFields(requiredField{"image.id", i.ID != ""}, requiredField{"image.size", i.Size != 0})
}

// RemoveImage removes an image and all its tags. A missing image is no error.
func (c *Client) RemoveImage(ctx context.Context, image cri.ImageSpec) error {
	_, err := invoke(ctx, c, callInfo{name: "RemoveImage", id: image.Image}, c.images.RemoveImage,
		&v1.RemoveImageRequest{Image: cripb.EncodeImageSpec(&image)})
	return ignoreNotFound(err)
}

// ImageUsage returns the disk usage of the runtime's images and of the writable container layers.
func (c *Client) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	r, err := invoke(ctx, c, callInfo{name: "ImageFsInfo"}, c.images.ImageFsInfo, &v1.ImageFsInfoRequest{})
	if err != nil {
		return cri.ImageUsage{}, err
	}
	return cripb.DecodeImageUsage(r), nil
}

// PullImage pulls an image and returns the reference that CreateContainer accepts. A nil auth means an anonymous pull.
// config is the config of the pod's sandbox, or nil. Only ctx limits the duration.
func (c *Client) PullImage(
	ctx context.Context, image cri.ImageSpec, auth *cri.Auth, config *cri.SandboxConfig,
) (string, error) {
	o := callInfo{name: "PullImage", id: image.Image}
	r, err := invoke(ctx, c, o, c.images.PullImage, &v1.PullImageRequest{
		Image:         cripb.EncodeImageSpec(&image),
		Auth:          cripb.EncodeAuth(auth),
		SandboxConfig: cripb.EncodeSandboxConfig(config),
	})
	if err != nil {
		return "", err
	}
	return r.GetImageRef(), o.requireFields(requiredField{"image_ref", r.GetImageRef() != ""})
}
