// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gctest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
)

// Layer is an image layer. A layer shared by several images uses disk space once.
type Layer struct {
	Name string
	Size uint64 // bytes
}

// Store simulates a runtime with images and containers, and the disk of its images. It is safe for concurrent use. [NewStore]
// creates it.
type Store struct {
	// Fault is called by each method of the runtime with its name, for example RemoveImage, and the ID of the image or container.
	// It may block; the method returns its error. No lock is held. Nil: no faults. It may be set before the first call.
	Fault func(ctx context.Context, op, id string) error
	// FreeDelay is the time from the removal of an image until its space is available. It may be set before the first call.
	FreeDelay time.Duration

	mu         sync.Mutex // guards all below
	capacity   uint64
	otherBytes uint64 // bytes used by other data than images
	images     []cri.Image
	layers     map[string][]Layer // by image ID
	containers []cri.Container
	delayed    []delayedSpace
	removed    []string // image IDs in the order of their removal
}

// delayedSpace is disk space of a removed image that becomes available only at the time at.
type delayedSpace struct {
	at    time.Time
	bytes uint64
}

var (
	_ cri.Images    = (*Store)(nil)
	_ cri.Lister    = (*Store)(nil)
	_ cri.Inspector = (*Store)(nil)
)

// NewStore returns a store without images on a disk of capacity bytes.
func NewStore(capacity uint64) *Store {
	return &Store{capacity: capacity, layers: map[string][]Layer{}}
}

// AddImage adds an image as a pull does: with the tag name:latest and a digest. It returns the image ID. The size of the
// image is the sum of its layers, even if it shares layers with other images.
func (s *Store) AddImage(name string, layers ...Layer) (id string) {
	id = "sha256:" + name
	var size uint64
	for _, l := range layers {
		size += l.Size
	}
	s.PutImage(cri.Image{ID: id, RepoTags: []string{name + ":latest"}, RepoDigests: []string{name + "@" + id}, Size: size}, layers...)
	return id
}

// PutImage adds image, or replaces the image with the same ID. The layers determine how much disk space it uses.
func (s *Store) PutImage(image cri.Image, layers ...Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = slices.DeleteFunc(s.images, func(i cri.Image) bool { return i.ID == image.ID })
	s.images = append(s.images, image)
	s.layers[image.ID] = layers
}

// AddContainer adds an exited container. Its ID and its name are both name, and it runs the image whose ID is image. It also
// mounts the images with the IDs in mounts as volumes.
func (s *Store) AddContainer(name, image string, mounts ...string) {
	c := cri.Container{ID: name, Name: name, PodUID: "pod-of-" + name, ImageID: image, State: cri.ContainerExited}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, cri.Mount{ContainerPath: "/" + m, Image: &cri.ImageSpec{Image: m}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = append(s.containers, c)
}

// RemoveContainer removes the container called name.
func (s *Store) RemoveContainer(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = slices.DeleteFunc(s.containers, func(c cri.Container) bool { return c.ID == name })
}

// SetOtherBytes sets how many bytes of the disk are used by data other than images.
func (s *Store) SetOtherBytes(bytes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.otherBytes = bytes
}

// HasImage reports whether the image with this ID is in the store.
func (s *Store) HasImage(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.images, func(i cri.Image) bool { return i.ID == id })
}

// RemovedIDs returns the IDs of the images that RemoveImage has removed, in order.
func (s *Store) RemovedIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed)
}

// Disk returns the capacity and the available space of the disk. Use it as gc.ImageOptions.Disk.
func (s *Store) Disk(ctx context.Context) (gc.Disk, error) {
	if err := s.callFault(ctx, "Disk", ""); err != nil {
		return gc.Disk{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used, now := s.otherBytes+s.layerBytes(), time.Now()
	for _, l := range s.delayed {
		if now.Before(l.at) {
			used += l.bytes
		}
	}
	return gc.Disk{Capacity: s.capacity, Available: max(s.capacity, used) - used}, nil
}

// layerBytes returns the disk space of all images in bytes. It counts a layer that several images share once. The caller
// holds s.mu.
func (s *Store) layerBytes() (bytes uint64) {
	layers := map[string]uint64{}
	for _, image := range s.images {
		for _, l := range s.layers[image.ID] {
			layers[l.Name] = l.Size
		}
	}
	for size := range maps.Values(layers) {
		bytes += size
	}
	return bytes
}

// List returns all containers without their mounts, because a real runtime does not list mounts either.
func (s *Store) List(ctx context.Context) (cri.Snapshot, error) {
	snap := cri.Snapshot{Time: time.Now()}
	if err := s.callFault(ctx, "List", ""); err != nil {
		return cri.Snapshot{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		c.Mounts = nil
		snap.Containers = append(snap.Containers, c)
	}
	return snap, nil
}

// SandboxStatus returns cri.ErrNotFound, because the store has no sandboxes.
func (s *Store) SandboxStatus(_ context.Context, id string) (cri.Sandbox, error) {
	return cri.Sandbox{}, &cri.Error{Op: "PodSandboxStatus", ID: id, Err: cri.ErrNotFound}
}

// ContainerStatus returns the container with this ID, including its mounts.
func (s *Store) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if err := s.callFault(ctx, "ContainerStatus", id); err != nil {
		return cri.Container{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.containers, func(c cri.Container) bool { return c.ID == id }); i >= 0 {
		return s.containers[i], nil
	}
	return cri.Container{}, &cri.Error{Op: "ContainerStatus", ID: id, Err: cri.ErrNotFound}
}

// ListImages returns all images of the store.
func (s *Store) ListImages(ctx context.Context) ([]cri.Image, error) {
	if err := s.callFault(ctx, "ListImages", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), nil
}

// ImageStatus returns the image with the ID spec.Image.
func (s *Store) ImageStatus(ctx context.Context, spec cri.ImageSpec) (cri.Image, error) {
	if err := s.callFault(ctx, "ImageStatus", spec.Image); err != nil {
		return cri.Image{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.images, func(i cri.Image) bool { return i.ID == spec.Image }); i >= 0 {
		return s.images[i], nil
	}
	return cri.Image{}, &cri.Error{Op: "ImageStatus", ID: spec.Image, Err: cri.ErrNotFound}
}

// RemoveImage removes the image whose ID is spec.Image. Like containerd, it also removes an image that containers use. If no
// image has this ID, it returns nil.
func (s *Store) RemoveImage(ctx context.Context, spec cri.ImageSpec) error {
	if err := s.callFault(ctx, "RemoveImage", spec.Image); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.layerBytes()
	was := len(s.images)
	s.images = slices.DeleteFunc(s.images, func(i cri.Image) bool { return i.ID == spec.Image })
	if len(s.images) == was {
		return nil
	}
	s.removed = append(s.removed, spec.Image)
	if s.FreeDelay > 0 {
		s.delayed = append(s.delayed, delayedSpace{time.Now().Add(s.FreeDelay), before - s.layerBytes()})
	}
	return nil
}

// ImageUsage returns the disk space of all images in bytes. The result contains no mount point.
func (s *Store) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	if err := s.callFault(ctx, "ImageFsInfo", ""); err != nil {
		return cri.ImageUsage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := s.layerBytes()
	return cri.ImageUsage{Images: []cri.FilesystemUsage{{Time: time.Now(), UsedBytes: &bytes}}}, nil
}

// callFault returns the error of ctx, or of the hook s.Fault for the operation on the image or container.
func (s *Store) callFault(ctx context.Context, op, id string) error {
	err := ctx.Err()
	if err == nil && s.Fault != nil {
		err = s.Fault(ctx, op, id)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
