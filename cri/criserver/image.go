// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver

import (
	"context"
	"errors"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

func (i *imageService) ListImages(ctx context.Context, req *v1.ListImagesRequest) (*v1.ListImagesResponse, error) {
	if i.server.images == nil {
		return nil, errUnsupportedCall("list images")
	}
	if want := req.GetFilter().GetImage(); want.GetImage() != "" {
		r, err := i.ImageStatus(ctx, &v1.ImageStatusRequest{Image: want})
		if err != nil || r.GetImage() == nil {
			return &v1.ListImagesResponse{}, err
		}
		return &v1.ListImagesResponse{Images: []*v1.Image{r.GetImage()}}, nil
	}
	images, err := i.server.images.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	out := &v1.ListImagesResponse{}
	for n := range images {
		out.Images = append(out.Images, cripb.EncodeImage(&images[n]))
	}
	return out, nil
}

// ImageStatus returns the status of an image. For a missing image it returns a response without an image, and no error.
func (i *imageService) ImageStatus(
	ctx context.Context, req *v1.ImageStatusRequest,
) (*v1.ImageStatusResponse, error) {
	if i.server.images == nil {
		return nil, errUnsupportedCall("image status")
	}
	image, err := i.server.images.ImageStatus(ctx, cripb.DecodeImageSpec(req.GetImage()))
	switch {
	case errors.Is(err, cri.ErrNotFound):
		return &v1.ImageStatusResponse{}, nil
	case err != nil:
		return nil, err
	}
	return &v1.ImageStatusResponse{Image: cripb.EncodeImage(&image)}, nil
}

func (i *imageService) RemoveImage(
	ctx context.Context, req *v1.RemoveImageRequest,
) (*v1.RemoveImageResponse, error) {
	if i.server.images == nil {
		return nil, errUnsupportedCall("remove image")
	}
	err := i.server.images.RemoveImage(ctx, cripb.DecodeImageSpec(req.GetImage()))
	return &v1.RemoveImageResponse{}, ignoreNotFound(err)
}

func (i *imageService) ImageFsInfo(
	ctx context.Context, _ *v1.ImageFsInfoRequest,
) (*v1.ImageFsInfoResponse, error) {
	if i.server.images == nil {
		return nil, errUnsupportedCall("image file systems")
	}
	usage, err := i.server.images.ImageUsage(ctx)
	if err != nil {
		return nil, err
	}
	return cripb.EncodeImageUsage(&usage), nil
}

func (i *imageService) PullImage(ctx context.Context, req *v1.PullImageRequest) (*v1.PullImageResponse, error) {
	if i.server.puller == nil {
		return nil, errUnsupportedCall("pull image")
	}
	ref, err := i.server.puller.PullImage(ctx, cripb.DecodeImageSpec(req.GetImage()),
		cripb.DecodeAuth(req.GetAuth()), cripb.DecodeSandboxConfig(req.GetSandboxConfig(), ""))
	if err != nil {
		return nil, err
	}
	return &v1.PullImageResponse{ImageRef: ref}, nil
}
