// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/reference"
)

// found is what a pass has found on the node.
type found struct {
	present map[string]cri.Image // by ID, as the runtime lists them
	listed  time.Time            // when the runtime was asked for its containers
	state   ImageState
	plan    ImagePlan
}

// detect finds out which images there are and which are used, keeps that, and plans.
func (g *Images) detect(ctx context.Context) (*found, error) {
	began := time.Now()
	listed, err := within(ctx, callTimeout, g.images.ListImages)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	// The containers come second: what is made of an image between the two is seen.
	snap, err := within(ctx, callTimeout, g.lister.List)
	if err != nil {
		return nil, fmt.Errorf("list containers, for the images that they use: %w", err)
	}
	used, err := g.used(ctx, &snap)
	if err != nil {
		return nil, err
	}
	f := &found{present: make(map[string]cri.Image, len(listed)), listed: snap.Time}
	ready, wanted := g.ready(), g.wanted() // in this order: what becomes known meanwhile is in the second
	f.state = ImageState{Images: make([]Image, 0, len(listed)), Now: time.Now(), Began: g.began}
	for i := range listed {
		image := &listed[i]
		if _, twice := f.present[image.ID]; twice {
			continue
		}
		f.present[image.ID] = *image
		if image.ID == "" {
			g.report(fmt.Errorf("image %q: the runtime lists it without an ID, so that it cannot be removed", image.RepoTags))
		}
		i := g.describe(image, used, wanted)
		i.Wanted = i.Wanted || !ready // any may be
		f.state.Images = append(f.state.Images, i)
	}
	g.ages.detect(f.state.Images, began, f.state.Now)
	if err := g.ages.save(); err != nil {
		g.report(err)
	}
	if g.policy.Kubelet {
		f.state.Now = began // ages are counted from before the lists
	}
	f.plan = PlanImages(g.policy, f.state)
	return f, nil
}

// describe returns an image with what decides about it, but for its ages.
func (g *Images) describe(image *cri.Image, used, wanted names) Image {
	i := Image{ID: image.ID, Names: image.RepoTags, Size: image.Size, Pinned: image.Pinned, Used: used.has(image), Wanted: wanted.has(image)}
	if len(i.Names) == 0 {
		i.Names = image.RepoDigests
	}
	i.Imported = len(image.RepoDigests) == 0 && (g.opts.Puller == nil || !g.opts.Puller.Pulled(image.ID))
	return i
}

// names are IDs and names of images, by what they mean.
type names map[string]bool

func (n names) add(name string) {
	if name != "" {
		n[reference.Identity(name)] = true
	}
}

// has reports whether an image is meant by one of the names.
func (n names) has(image *cri.Image) bool {
	if len(n) == 0 {
		return false
	}
	is := func(name string) bool { return n[reference.Identity(name)] }
	return n[image.ID] || slices.ContainsFunc(image.RepoTags, is) || slices.ContainsFunc(image.RepoDigests, is)
}

func (g *Images) wanted() names {
	n := names{}
	if g.opts.Wanted != nil {
		for _, name := range g.opts.Wanted() {
			n.add(name)
		}
	}
	return n
}

// used returns the images that containers are made of, or mount. What a container mounts is not in the list where the runtime is
// an Inspector, and is asked for once. The error of one that cannot be looked into is that of the pass: nobody knows what it mounts.
func (g *Images) used(ctx context.Context, snap *cri.Snapshot) (names, error) {
	n, mounts := names{}, make(map[string][]string, len(snap.Containers))
	for i := range snap.Containers {
		c := &snap.Containers[i]
		if c.ImageID != "" {
			n[c.ImageID] = true
		} else { // the runtime does not tell it apart
			n.add(c.ImageRef)
			n.add(c.Image.Image)
		}
		mounted, err := g.mounted(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("which images container %s of pod %s mounts: %w", c.ID, c.PodUID, err)
		}
		for _, name := range mounted {
			n.add(name)
			n[name] = true
		}
		mounts[c.ID] = mounted
	}
	g.mounts = mounts
	return n, nil
}

// mounted returns the images that a container mounts, which never change.
func (g *Images) mounted(ctx context.Context, c *cri.Container) ([]string, error) {
	if mounted, known := g.mounts[c.ID]; known {
		return mounted, nil
	}
	status := *c
	if g.inspector != nil {
		var err error
		status, err = within(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, c.ID) })
		if errors.Is(err, cri.ErrNotFound) {
			return nil, nil // it is gone
		}
		if err != nil {
			return nil, err
		}
	}
	mounted := map[string]bool{}
	for i := range status.Mounts {
		if image := status.Mounts[i].Image; image != nil && image.Image != "" {
			mounted[image.Image] = true
		}
	}
	return slices.Collect(maps.Keys(mounted)), nil
}

// within makes a call that ends in time.
func within[T any](ctx context.Context, d time.Duration, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return call(ctx)
}
