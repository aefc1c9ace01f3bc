// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/reference"
)

const (
	// maxClaimed is how often Ensure waits for somebody who removes the very image that it has found.
	maxClaimed = 3
	// forgetReleased is after how long it is forgotten that an image was held, or claimed. Whoever removes images has listed them
	// less long ago, and whoever ensures one has seen it.
	forgetReleased = time.Hour
)

// holds knows which images containers are about to be created from, and which are being removed. The zero value is ready.
type holds struct {
	mu       sync.Mutex                 // guards all below
	names    map[string]*hold           // by what they mean
	claims   map[string]<-chan struct{} // by image ID; closed when the claim is released
	released map[string]time.Time       // by image ID: when a hold of it ended last
	ended    map[string]ended           // by image ID: the last claim that was released
	claimed  uint64                     // how many claims were released
}

// ended is a claim that was released.
type ended struct {
	number uint64
	at     time.Time
}

// hold is of one name.
type hold struct {
	count int             // calls of Hold that are not released
	ids   map[string]bool // of the images that Ensure has found by that name
}

// Hold keeps the image of a name, as it stands in a container, from being claimed until release is called, and also what
// Ensure returns for that name meanwhile. It is for the time from before Ensure until the container is created; from then
// on whoever removes images finds the container. Ensure holds the image itself for as long as it takes.
func (p *Puller) Hold(image string) (release func()) {
	h := &p.holds
	key := reference.Identity(image)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.names == nil {
		h.names = map[string]*hold{}
	}
	now := h.names[key]
	if now == nil {
		now = &hold{ids: map[string]bool{}}
		h.names[key] = now
	}
	now.count++
	return sync.OnceFunc(func() { h.release(key) })
}

// release ends one hold of a name.
func (h *holds) release(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.names[key]
	if was.count--; was.count > 0 {
		return
	}
	delete(h.names, key)
	now := time.Now()
	if h.released == nil {
		h.released = map[string]time.Time{}
	}
	maps.DeleteFunc(h.released, func(_ string, at time.Time) bool { return now.Sub(at) > forgetReleased })
	for id := range was.ids {
		h.released[id] = now
	}
}

// Claim makes an image the caller's to remove, until release is called: an Ensure that finds the image waits for that. It is
// refused where a container is or was about to be created from the image, or somebody else has the claim. The image is as the
// runtime lists it, and listed is when the caller last asked the runtime which containers there are, so that a container
// that was created since is not overlooked.
func (p *Puller) Claim(image cri.Image, listed time.Time) (release func(), ok bool) {
	h := &p.holds
	h.mu.Lock()
	defer h.mu.Unlock()
	if image.ID == "" || h.claims[image.ID] != nil || h.held(&image) {
		return nil, false
	}
	if at, was := h.released[image.ID]; was && !at.Before(listed) {
		return nil, false
	}
	if h.claims == nil {
		h.claims = map[string]<-chan struct{}{}
	}
	done := make(chan struct{})
	h.claims[image.ID] = done
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.claims, image.ID)
		now := time.Now()
		maps.DeleteFunc(h.ended, func(_ string, e ended) bool { return now.Sub(e.at) > forgetReleased })
		if h.ended == nil {
			h.ended = map[string]ended{}
		}
		h.claimed++
		h.ended[image.ID] = ended{h.claimed, now}
		close(done)
	}), true
}

// held reports whether an image is held under any of its names. The lock is held.
func (h *holds) held(image *cri.Image) bool {
	for _, now := range h.names {
		if now.ids[image.ID] {
			return true
		}
	}
	if len(h.names) == 0 {
		return false
	}
	return slices.ContainsFunc(slices.Concat(image.RepoTags, image.RepoDigests, []string{image.ID}), func(name string) bool {
		return h.names[reference.Identity(name)] != nil
	})
}

// look returns what take wants to know: how many claims were released before somebody looked for an image.
func (h *holds) look() (before uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimed
}

// take adds an image to the hold of a name. It does not where somebody removes the image, and returns what is closed when the claim
// is released, nor where somebody has had a claim since the caller looked for the image: it may be gone.
func (h *holds) take(key, id string, before uint64) (claimed <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if claimed := h.claims[id]; claimed != nil {
		return claimed, false
	}
	if h.ended[id].number > before {
		now := make(chan struct{})
		close(now)
		return now, false
	}
	if now := h.names[key]; now != nil {
		now.ids[id] = true
	}
	return nil, true
}

// Pulled reports whether there is a record of a pull of the image with this ID, so that it is known to come from a registry.
// Without Options.Records there is none of any image.
func (p *Puller) Pulled(id string) bool { return p.records.has(id) }

// errClaimed is why an image that is there cannot be used.
var errClaimed = errors.New("it is being removed, and that takes too long")

// ensureHeld is ensure for an image that is held. When somebody is about to remove what it has found, it waits and looks again.
func (p *Puller) ensureHeld(ctx context.Context, r Request) (cri.Image, error) {
	key := reference.Identity(r.Image)
	for range maxClaimed {
		before := p.holds.look()
		image, err := p.ensure(ctx, r)
		if err != nil {
			return image, err
		}
		claimed, ok := p.holds.take(key, image.ID, before)
		if ok {
			return image, nil
		}
		timer := time.NewTimer(callTimeout)
		select {
		case <-claimed:
		case <-timer.C:
			return cri.Image{}, inspectError(r.Image, errClaimed)
		case <-ctx.Done():
			timer.Stop()
			return cri.Image{}, ctx.Err()
		}
		timer.Stop()
	}
	return cri.Image{}, inspectError(r.Image, errClaimed)
}
