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

// Layer is a part of images, which takes its room once.
type Layer struct {
	Name string
	Size uint64 // bytes
}

// Store is the images of a runtime, its containers, and the disk that the images are on. Its methods may be called from many
// goroutines. Make one with [NewStore].
type Store struct {
	// Fault is called in each call of the runtime's, with no lock held: its name, such as RemoveImage, and the ID that it is about. It
	// may take its time, and its error is that of the call. Nil: all succeed at once. It may be set before the first call.
	Fault func(ctx context.Context, op, id string) error
	// Late is how long after the removal of an image its room is available. It may be set before the first call.
	Late time.Duration

	mu         sync.Mutex // guards all below
	capacity   uint64
	other      uint64 // bytes that no image takes
	images     []cri.Image
	layers     map[string][]Layer // by image ID
	containers []cri.Container
	late       []lateRoom
	removed    []string
}

// lateRoom is room that is yet to come back.
type lateRoom struct {
	at    time.Time
	bytes uint64
}

var (
	_ cri.Images    = (*Store)(nil)
	_ cri.Lister    = (*Store)(nil)
	_ cri.Inspector = (*Store)(nil)
)

// NewStore returns an empty store on a disk of so many bytes.
func NewStore(capacity uint64) *Store {
	return &Store{capacity: capacity, layers: map[string][]Layer{}}
}

// Load puts an image on the disk, as a pull does, and returns its ID. Its size is that of its layers, also of those that it shares. Its
// digest says that a registry has it.
func (s *Store) Load(name string, layers ...Layer) (id string) {
	id = "sha256:" + name
	var size uint64
	for _, l := range layers {
		size += l.Size
	}
	s.Put(cri.Image{ID: id, RepoTags: []string{name + ":latest"}, RepoDigests: []string{name + "@" + id}, Size: size}, layers...)
	return id
}

// Put puts an image on the disk as the runtime lists it, or replaces the one with its ID.
func (s *Store) Put(image cri.Image, layers ...Layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = slices.DeleteFunc(s.images, func(i cri.Image) bool { return i.ID == image.ID })
	s.images = append(s.images, image)
	s.layers[image.ID] = layers
}

// Use makes a container of an image, which has the ID of the image and the name of the container; mounts are images that it mounts.
func (s *Store) Use(container, image string, mounts ...string) {
	c := cri.Container{ID: container, Name: container, PodUID: "pod-of-" + container, ImageID: image, State: cri.ContainerExited}
	for _, m := range mounts {
		c.Mounts = append(c.Mounts, cri.Mount{ContainerPath: "/" + m, Image: &cri.ImageSpec{Image: m}})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = append(s.containers, c)
}

// Unuse removes a container.
func (s *Store) Unuse(container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = slices.DeleteFunc(s.containers, func(c cri.Container) bool { return c.ID == container })
}

// Fill says how many bytes are taken by what is no image.
func (s *Store) Fill(other uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = other
}

// Has reports whether the store has an image.
func (s *Store) Has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.images, func(i cri.Image) bool { return i.ID == id })
}

// Removed returns the IDs of the images that were removed, in that order.
func (s *Store) Removed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.removed)
}

// Disk measures the disk, for gc.ImageOptions.
func (s *Store) Disk(ctx context.Context) (gc.Disk, error) {
	if err := s.fault(ctx, "Disk", ""); err != nil {
		return gc.Disk{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used, now := s.other+s.takes(), time.Now()
	for _, l := range s.late {
		if now.Before(l.at) {
			used += l.bytes
		}
	}
	return gc.Disk{Capacity: s.capacity, Available: max(s.capacity, used) - used}, nil
}

// takes returns how many bytes the images take. The lock is held.
func (s *Store) takes() (bytes uint64) {
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

// List returns the containers, without what they mount.
func (s *Store) List(ctx context.Context) (cri.Snapshot, error) {
	snap := cri.Snapshot{Time: time.Now()}
	if err := s.fault(ctx, "List", ""); err != nil {
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

// SandboxStatus finds nothing: there are no sandboxes.
func (s *Store) SandboxStatus(_ context.Context, id string) (cri.Sandbox, error) {
	return cri.Sandbox{}, &cri.Error{Op: "PodSandboxStatus", ID: id, Err: cri.ErrNotFound}
}

// ContainerStatus returns a container with what it mounts.
func (s *Store) ContainerStatus(ctx context.Context, id string) (cri.Container, error) {
	if err := s.fault(ctx, "ContainerStatus", id); err != nil {
		return cri.Container{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.containers, func(c cri.Container) bool { return c.ID == id }); i >= 0 {
		return s.containers[i], nil
	}
	return cri.Container{}, &cri.Error{Op: "ContainerStatus", ID: id, Err: cri.ErrNotFound}
}

// ListImages returns the images.
func (s *Store) ListImages(ctx context.Context) ([]cri.Image, error) {
	if err := s.fault(ctx, "ListImages", ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), nil
}

// ImageStatus finds an image by its ID.
func (s *Store) ImageStatus(ctx context.Context, spec cri.ImageSpec) (cri.Image, error) {
	if err := s.fault(ctx, "ImageStatus", spec.Image); err != nil {
		return cri.Image{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.images, func(i cri.Image) bool { return i.ID == spec.Image }); i >= 0 {
		return s.images[i], nil
	}
	return cri.Image{}, &cri.Error{Op: "ImageStatus", ID: spec.Image, Err: cri.ErrNotFound}
}

// RemoveImage removes an image by its ID, also while containers use it, as containerd does.
func (s *Store) RemoveImage(ctx context.Context, spec cri.ImageSpec) error {
	if err := s.fault(ctx, "RemoveImage", spec.Image); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.takes()
	was := len(s.images)
	s.images = slices.DeleteFunc(s.images, func(i cri.Image) bool { return i.ID == spec.Image })
	if len(s.images) == was {
		return nil
	}
	s.removed = append(s.removed, spec.Image)
	if s.Late > 0 {
		s.late = append(s.late, lateRoom{time.Now().Add(s.Late), before - s.takes()})
	}
	return nil
}

// ImageUsage says that the images are nowhere in particular.
func (s *Store) ImageUsage(ctx context.Context) (cri.ImageUsage, error) {
	if err := s.fault(ctx, "ImageFsInfo", ""); err != nil {
		return cri.ImageUsage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := s.takes()
	return cri.ImageUsage{Images: []cri.FilesystemUsage{{Time: time.Now(), UsedBytes: &bytes}}}, nil
}

func (s *Store) fault(ctx context.Context, op, id string) error {
	err := ctx.Err()
	if err == nil && s.Fault != nil {
		err = s.Fault(ctx, op, id)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
