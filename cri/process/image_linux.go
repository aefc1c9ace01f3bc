// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"path"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// nominalSize is the size of every image: CRI clients reject an image without a size.
const nominalSize = 1

// nominalImage returns an image with the name and the agent's user, because this runtime needs no images.
func nominalImage(image cri.ImageSpec) cri.Image {
	uid := int64(os.Geteuid())
	i := cri.Image{ID: image.Image, Size: nominalSize, UID: &uid, Spec: image, Pinned: true}
	switch {
	case strings.Contains(image.Image, "@"):
		i.RepoDigests = []string{image.Image}
	case strings.Contains(path.Base(image.Image), ":"): // an earlier colon belongs to a port
		i.RepoTags = []string{image.Image}
	default: // CRI clients, such as crictl, reject a name without a tag
		i.RepoTags = []string{image.Image + ":latest"}
	}
	return i
}

// ListImages returns an image for each image name that a container uses.
func (r *Runtime) ListImages(ctx context.Context) ([]cri.Image, error) {
	snapshot, err := r.snapshot(ctx, func(string) bool { return true })
	if err != nil {
		return nil, wrapError("ListImages", "", err)
	}
	var images []cri.Image
	seen := make(map[string]bool)
	for _, c := range snapshot.Containers {
		if name := c.Image.Image; name != "" && !seen[name] {
			seen[name] = true
			images = append(images, nominalImage(c.Image))
		}
	}
	return images, nil
}

// ImageStatus returns an image for every name, as if all images existed.
func (r *Runtime) ImageStatus(_ context.Context, image cri.ImageSpec) (cri.Image, error) {
	if image.Image == "" {
		return cri.Image{}, wrapError("ImageStatus", "", cri.ErrNotFound)
	}
	return nominalImage(image), nil
}

// PullImage returns the image name as the reference, and pulls nothing.
func (r *Runtime) PullImage(_ context.Context, image cri.ImageSpec, _ *cri.Auth, _ *cri.SandboxConfig) (string, error) {
	return image.Image, nil
}

// RemoveImage succeeds without effect: this runtime has no images.
func (r *Runtime) RemoveImage(context.Context, cri.ImageSpec) error { return nil }

// ImageUsage returns the file system of the state directory, with a usage of zero.
func (r *Runtime) ImageUsage(context.Context) (cri.ImageUsage, error) {
	var none uint64
	usage := cri.FilesystemUsage{Time: time.Now(), Mountpoint: r.root, UsedBytes: &none, InodesUsed: &none}
	return cri.ImageUsage{Images: []cri.FilesystemUsage{usage}}, nil
}
