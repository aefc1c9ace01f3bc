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

// passState is the state of the images at the start of a pass, which is one collection, and the plan of removals.
type passState struct {
	present map[string]cri.Image // images listed by the runtime, by ID
	listed  time.Time            // when the containers were listed
	state   ImageState
	plan    ImagePlan
}

// readState lists the images and containers of the runtime, updates the ages of images, and plans the removals.
func (g *Images) readState(ctx context.Context) (*passState, error) {
	began := time.Now()
	listed, err := callWithTimeout(ctx, callTimeout, g.images.ListImages)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	// Containers are listed after images, so that a container created in between is seen.
	snap, err := callWithTimeout(ctx, callTimeout, g.lister.List)
	if err != nil {
		return nil, fmt.Errorf("list containers, for the images that they use: %w", err)
	}
	used, err := g.usedImageNames(ctx, &snap)
	if err != nil {
		return nil, err
	}
	f := &passState{present: make(map[string]cri.Image, len(listed)), listed: snap.Time}
	ready, wanted := g.podsComplete(), g.podImageNames() // in this order: pods that are reported in between are in the names
	f.state = ImageState{Images: make([]Image, 0, len(listed)), Now: time.Now(), Began: g.firstPass}
	for i := range listed {
		image := &listed[i]
		if _, twice := f.present[image.ID]; twice {
			continue
		}
		f.present[image.ID] = *image
		if image.ID == "" {
			g.reportError(fmt.Errorf("image %q: the runtime lists it without an ID, so that it cannot be removed", image.RepoTags))
		}
		i := g.newImage(image, used, wanted)
		i.NamedByPod = i.NamedByPod || !ready // a missing pod may name any image
		f.state.Images = append(f.state.Images, i)
	}
	g.ages.update(f.state.Images, began, f.state.Now)
	if err := g.ages.writeFile(); err != nil {
		g.reportError(err)
	}
	if g.policy.Kubelet {
		f.state.Now = began // the kubelet counts ages from before the lists
	}
	f.plan = PlanImages(g.policy, f.state)
	return f, nil
}

// newImage converts an image of the runtime to the input of [PlanImages]. The caller sets the times at which the image was
// detected and used.
func (g *Images) newImage(image *cri.Image, usedByContainers, namedByPods imageNames) Image {
	i := Image{ID: image.ID, Names: image.RepoTags, Size: image.Size, Pinned: image.Pinned, Used: usedByContainers.hasImage(image), NamedByPod: namedByPods.hasImage(image)}
	if len(i.Names) == 0 {
		i.Names = image.RepoDigests
	}
	i.Imported = len(image.RepoDigests) == 0 && (g.opts.Puller == nil || !g.opts.Puller.HasPullRecord(image.ID))
	return i
}

// imageNames is a set of image IDs and normalized image names.
type imageNames map[string]bool

func (n imageNames) addName(name string) {
	if name != "" {
		n[reference.Identity(name)] = true
	}
}

// hasImage reports whether the set n contains the image: its ID, one of its tags or one of its digests.
func (n imageNames) hasImage(image *cri.Image) bool {
	if len(n) == 0 {
		return false
	}
	is := func(name string) bool { return n[reference.Identity(name)] }
	return n[image.ID] || slices.ContainsFunc(image.RepoTags, is) || slices.ContainsFunc(image.RepoDigests, is)
}

func (g *Images) podImageNames() imageNames {
	n := imageNames{}
	if g.opts.PodImages != nil {
		for _, name := range g.opts.PodImages() {
			n.addName(name)
		}
	}
	return n
}

// usedImageNames returns the images that containers were created from or mount. After an error no image may be removed.
func (g *Images) usedImageNames(ctx context.Context, snap *cri.Snapshot) (imageNames, error) {
	n, mounts := imageNames{}, make(map[string][]string, len(snap.Containers))
	for i := range snap.Containers {
		c := &snap.Containers[i]
		if c.ImageID != "" {
			n[c.ImageID] = true
		} else { // the runtime reports no ID
			n.addName(c.ImageRef)
			n.addName(c.Image.Image)
		}
		mounted, err := g.mountedImages(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("which images container %s of pod %s mounts: %w", c.ID, c.PodUID, err)
		}
		for _, name := range mounted {
			n.addName(name)
			n[name] = true
		}
		mounts[c.ID] = mounted
	}
	g.mounts = mounts
	return n, nil
}

// mountedImages returns the names of the images that the container c mounts. It requests the mounts of a container only
// once, because they never change.
func (g *Images) mountedImages(ctx context.Context, c *cri.Container) ([]string, error) {
	if mounted, known := g.mounts[c.ID]; known {
		return mounted, nil
	}
	status := *c
	if g.inspector != nil {
		var err error
		status, err = callWithTimeout(ctx, callTimeout, func(ctx context.Context) (cri.Container, error) { return g.inspector.ContainerStatus(ctx, c.ID) })
		if errors.Is(err, cri.ErrNotFound) {
			return nil, nil // the container was removed
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

// callWithTimeout returns the result of call. The context for call ends after the timeout.
func callWithTimeout[T any](ctx context.Context, timeout time.Duration, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return call(ctx)
}
