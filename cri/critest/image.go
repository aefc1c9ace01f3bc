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

// NewImage returns an image that has one tag and an ID made of it. Without RepoDigests it counts as imported, so that package gc keeps it: set
// RepoDigests for an image that a registry serves.
func NewImage(ref string, size uint64) cri.Image {
	sum := sha256.Sum256([]byte(ref))
	return cri.Image{
		ID:       "sha256:" + hex.EncodeToString(sum[:]),
		RepoTags: []string{ref},
		Size:     size,
		Spec:     cri.ImageSpec{Image: ref},
	}
}

// ListImages returns the images of Options.Images and those that were pulled or used since.
func (r *Runtime) ListImages(ctx context.Context) (images []cri.Image, err error) {
	call := r.begin(Call{Op: "ListImages"})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.images), nil
}

// ImageStatus finds an image by tag, digest or ID.
func (r *Runtime) ImageStatus(ctx context.Context, s cri.ImageSpec) (img cri.Image, err error) {
	call := r.begin(Call{Op: "ImageStatus", Name: s.Image})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Image{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.image(s.Image); i >= 0 {
		return r.images[i], nil
	}
	if r.opts.Images == nil {
		return NewImage(s.Image, 0), nil
	}
	return cri.Image{}, cri.ErrNotFound
}

// RemoveImage removes an image also while containers use it, as containerd does.
func (r *Runtime) RemoveImage(ctx context.Context, s cri.ImageSpec) (err error) {
	call := r.begin(Call{Op: "RemoveImage", Name: s.Image})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.image(s.Image); i >= 0 {
		r.images = slices.Delete(r.images, i, i+1)
	}
	return nil
}

// ImageUsage returns one file system that holds the sum of the images' sizes.
func (r *Runtime) ImageUsage(ctx context.Context) (u cri.ImageUsage, err error) {
	call := r.begin(Call{Op: "ImageFsInfo"})
	defer r.end(call, &err)
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

// PullImage runs Options.Pull and keeps the image.
func (r *Runtime) PullImage(ctx context.Context, i cri.ImageSpec, auth *cri.Auth, _ *cri.SandboxConfig) (ref string, err error) {
	call := r.begin(Call{Op: "PullImage", Name: i.Image})
	defer r.end(call, &err)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	img := NewImage(i.Image, 0)
	if r.opts.Pull != nil {
		if img, err = r.opts.Pull(ctx, i, auth); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(img)
	return reference(img), nil
}

// image returns the index of the image that a tag, a digest or an ID names, or -1. r.mu is held.
func (r *Runtime) image(ref string) int {
	return slices.IndexFunc(r.images, func(i cri.Image) bool {
		return i.ID == ref || slices.Contains(i.RepoTags, ref) || slices.Contains(i.RepoDigests, ref)
	})
}

// keep adds an image, or replaces the one with its ID. r.mu is held.
func (r *Runtime) keep(img cri.Image) {
	if i := r.image(img.ID); i >= 0 {
		r.images[i] = img
		return
	}
	r.images = append(r.images, img)
}

// use returns the image that a container is made of. r.mu is held.
func (r *Runtime) use(s cri.ImageSpec) (cri.Image, error) {
	if i := r.image(s.Image); i >= 0 {
		return r.images[i], nil
	}
	if r.opts.Images != nil {
		return cri.Image{}, fmt.Errorf("image %q: %w", s.Image, cri.ErrNotFound)
	}
	img := NewImage(s.Image, 0)
	r.keep(img)
	return img, nil
}

// reference returns what containers are created with: a digest where there is one, else the ID.
func reference(img cri.Image) string {
	if len(img.RepoDigests) > 0 {
		return img.RepoDigests[0]
	}
	return img.ID
}
