// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// ListImages returns every image.
func (c *Client) ListImages(ctx context.Context) ([]cri.Image, error) {
	r, err := call(ctx, c, op{name: "ListImages"}, c.images.ListImages, &v1.ListImagesRequest{})
	if err != nil {
		return nil, err
	}
	return decodeList(r.GetImages(), cripb.DecodeImage), nil
}

// ImageStatus returns the image that a reference or an ID names.
func (c *Client) ImageStatus(ctx context.Context, s cri.ImageSpec) (cri.Image, error) {
	o := op{name: "ImageStatus", id: s.Image}
	r, err := call(ctx, c, o, c.images.ImageStatus, &v1.ImageStatusRequest{Image: cripb.EncodeImageSpec(&s)})
	if err != nil {
		return cri.Image{}, err
	}
	if r.GetImage() == nil {
		return cri.Image{}, o.fail(cri.ErrNotFound)
	}
	i := cripb.DecodeImage(r.GetImage())
	return i, o.require(field{"image.id", i.ID != ""}, field{"image.size", i.Size != 0})
}

// RemoveImage removes an image with all its tags.
func (c *Client) RemoveImage(ctx context.Context, s cri.ImageSpec) error {
	_, err := call(ctx, c, op{name: "RemoveImage", id: s.Image}, c.images.RemoveImage,
		&v1.RemoveImageRequest{Image: cripb.EncodeImageSpec(&s)})
	return goneIsFine(err)
}

// ImageUsage returns the usage of the file systems that hold images and container layers.
func (c *Client) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	r, err := call(ctx, c, op{name: "ImageFsInfo"}, c.images.ImageFsInfo, &v1.ImageFsInfoRequest{})
	if err != nil {
		return cri.ImageUsage{}, err
	}
	return cripb.DecodeImageUsage(r), nil
}

// PullImage pulls an image and returns the reference to create containers with. It has no time limit but that
// of ctx.
func (c *Client) PullImage(
	ctx context.Context, i cri.ImageSpec, auth *cri.Auth, s *cri.SandboxConfig,
) (string, error) {
	o := op{name: "PullImage", id: i.Image}
	r, err := call(ctx, c, o, c.images.PullImage, &v1.PullImageRequest{
		Image:         cripb.EncodeImageSpec(&i),
		Auth:          cripb.EncodeAuth(auth),
		SandboxConfig: cripb.EncodeSandboxConfig(s),
	})
	if err != nil {
		return "", err
	}
	return r.GetImageRef(), o.require(field{"image_ref", r.GetImageRef() != ""})
}
