// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// NewImage returns an image with tag ref and an ID derived from ref. It has no RepoDigests, so that package gc takes it for an
// imported image and keeps it. A test that simulates a pulled image sets RepoDigests.
func NewImage(ref string, size uint64) cri.Image {
	sum := sha256.Sum256([]byte(ref))
	return cri.Image{
		ID:       "sha256:" + hex.EncodeToString(sum[:]),
		RepoTags: []string{ref},
		Size:     size,
		Spec:     cri.ImageSpec{Image: ref},
	}
}

// ListImages returns Options.Images, and all images that were pulled or used by a container after [New].
func (r *Runtime) ListImages(ctx context.Context) (images []cri.Image, err error) {
	call := r.recordCall(Call{Op: "ListImages"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.images), nil
}

// ImageStatus returns the image with this tag, digest or ID. If Options.Images is not set, every image exists.
func (r *Runtime) ImageStatus(ctx context.Context, image cri.ImageSpec) (img cri.Image, err error) {
	call := r.recordCall(Call{Op: "ImageStatus", Name: image.Image})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Image{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.findImage(image.Image); i >= 0 {
		return r.images[i], nil
	}
	if r.opts.Images == nil {
		return NewImage(image.Image, 0), nil
	}
	return cri.Image{}, cri.ErrNotFound
}

// RemoveImage removes an image, even if a container uses it, as containerd does.
func (r *Runtime) RemoveImage(ctx context.Context, image cri.ImageSpec) (err error) {
	call := r.recordCall(Call{Op: "RemoveImage", Name: image.Image})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.findImage(image.Image); i >= 0 {
		r.images = slices.Delete(r.images, i, i+1)
	}
	return nil
}

// ImageUsage returns one file system whose usage is the total size of the images.
func (r *Runtime) ImageUsage(ctx context.Context) (u cri.ImageUsage, err error) {
	call := r.recordCall(Call{Op: "ImageFsInfo"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.ImageUsage{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var bytes uint64
	for _, img := range r.images {
		bytes += img.Size
	}
	inodes := uint64(len(r.images))
	return cri.ImageUsage{Images: []cri.FilesystemUsage{{
		Time: time.Now(), Mountpoint: "/critest", UsedBytes: &bytes, InodesUsed: &inodes,
	}}}, nil
}

// PullImage stores the image that Options.Pull returns. If Options.Pull is nil, it stores an image of size zero. It returns
// the reference to pass to CreateContainer.
func (r *Runtime) PullImage(ctx context.Context, image cri.ImageSpec, auth *cri.Auth, _ *cri.SandboxConfig) (ref string, err error) {
	call := r.recordCall(Call{Op: "PullImage", Name: image.Image})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	img := NewImage(image.Image, 0)
	if r.opts.Pull != nil {
		if img, err = r.opts.Pull(ctx, image, auth); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.storeImage(img)
	return imageRef(img), nil
}

// findImage returns the index of the image with this tag, digest or ID, or -1. r.mu is held.
func (r *Runtime) findImage(ref string) int {
	return slices.IndexFunc(r.images, func(i cri.Image) bool {
		return i.ID == ref || slices.Contains(i.RepoTags, ref) || slices.Contains(i.RepoDigests, ref)
	})
}

// storeImage adds an image. It replaces an image with the same ID. r.mu is held.
func (r *Runtime) storeImage(img cri.Image) {
	if i := r.findImage(img.ID); i >= 0 {
		r.images[i] = img
		return
	}
	r.images = append(r.images, img)
}

// imageForContainer returns the image of a new container. If Options.Images is not set, it adds a missing image. r.mu is held.
func (r *Runtime) imageForContainer(image cri.ImageSpec) (cri.Image, error) {
	if i := r.findImage(image.Image); i >= 0 {
		return r.images[i], nil
	}
	if r.opts.Images != nil {
		return cri.Image{}, fmt.Errorf("image %q: %w", image.Image, cri.ErrNotFound)
	}
	img := NewImage(image.Image, 0)
	r.storeImage(img)
	return img, nil
}

// imageRef returns the reference with which CreateContainer identifies img: its first digest or, without digests, its ID.
func imageRef(img cri.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return img.ID
}
