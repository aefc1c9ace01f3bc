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
	// maxClaimWaits limits how often one Ensure waits for the removal of the image that it has found.
	maxClaimWaits = 3
	// releaseMemory is how long released holds and claims are recorded. A list of containers before a removal is never older
	// than that, nor is an image that a running Ensure has found.
	releaseMemory = time.Hour
)

// holdTable records the images that containers will be created from and the images that are being removed. The zero value is
// ready to use.
type holdTable struct {
	mu         sync.Mutex                 // guards all below
	names      map[string]*nameHold       // by reference.Identity of the image name
	claims     map[string]<-chan struct{} // by image ID; closed when the claim is released
	released   map[string]time.Time       // by image ID: time at which its last hold was released
	lastClaims map[string]releasedClaim   // by image ID: the last released claim
	claimCount uint64                     // number of released claims of all images
}

// releasedClaim is a claim that was released, with the number that holdTable.claimCount had then.
type releasedClaim struct {
	number uint64
	at     time.Time
}

// nameHold is the state of all holds of one image name.
type nameHold struct {
	calls    int             // calls of Hold that have not been released
	imageIDs map[string]bool // images that Ensure has found by this name
}

// Hold prevents [Puller.Claim], and thereby the removal of an image, until release is called. image is the name in a
// container spec. Call Hold before Ensure, and release after the container is created, because the container then protects
// the image.
func (p *Puller) Hold(image string) (release func()) {
	table := &p.holds
	key := reference.Identity(image)
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.names == nil {
		table.names = map[string]*nameHold{}
	}
	entry := table.names[key]
	if entry == nil {
		entry = &nameHold{imageIDs: map[string]bool{}}
		table.names[key] = entry
	}
	entry.calls++
	return sync.OnceFunc(func() { table.releaseHold(key) })
}

// releaseHold ends one call of Hold. After the last one, the images found by this name are no longer protected.
func (h *holdTable) releaseHold(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.names[key]
	if entry.calls--; entry.calls > 0 {
		return
	}
	delete(h.names, key)
	now := time.Now()
	if h.released == nil {
		h.released = map[string]time.Time{}
	}
	maps.DeleteFunc(h.released, func(_ string, at time.Time) bool { return now.Sub(at) > releaseMemory })
	for id := range entry.imageIDs {
		h.released[id] = now
	}
}

// Claim reserves an image for removal until release is called. Until then, an Ensure that finds the image waits. ok is false
// if the image is claimed, held, or was held since listed: a container that uses it may have been created after the caller
// listed the containers at that time.
func (p *Puller) Claim(image cri.Image, listed time.Time) (release func(), ok bool) {
	table := &p.holds
	table.mu.Lock()
	defer table.mu.Unlock()
	if image.ID == "" || table.claims[image.ID] != nil || table.isHeld(&image) {
		return nil, false
	}
	if at, was := table.released[image.ID]; was && !at.Before(listed) {
		return nil, false
	}
	if table.claims == nil {
		table.claims = map[string]<-chan struct{}{}
	}
	done := make(chan struct{})
	table.claims[image.ID] = done
	return sync.OnceFunc(func() {
		table.mu.Lock()
		defer table.mu.Unlock()
		delete(table.claims, image.ID)
		now := time.Now()
		maps.DeleteFunc(table.lastClaims, func(_ string, e releasedClaim) bool { return now.Sub(e.at) > releaseMemory })
		if table.lastClaims == nil {
			table.lastClaims = map[string]releasedClaim{}
		}
		table.claimCount++
		table.lastClaims[image.ID] = releasedClaim{table.claimCount, now}
		close(done)
	}), true
}

// isHeld reports whether a call of Hold protects the image. It compares the ID of the image and all its names. The caller
// holds h.mu.
func (h *holdTable) isHeld(image *cri.Image) bool {
	for _, entry := range h.names {
		if entry.imageIDs[image.ID] {
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

// countClaims returns the number of claims (reservations of images for removal) that were released so far. The caller
// passes the number to addImage as earlierClaims.
func (h *holdTable) countClaims() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.claimCount
}

// addImage adds an image to the hold of a name. If the image is claimed for removal, it returns a channel that is closed at
// the release of the claim.
func (h *holdTable) addImage(key, id string, earlierClaims uint64) (claimed <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if claimed := h.claims[id]; claimed != nil {
		return claimed, false
	}
	// A claim was released since countClaims returned earlierClaims: the image may have been removed.
	if h.lastClaims[id].number > earlierClaims {
		released := make(chan struct{})
		close(released)
		return released, false
	}
	if entry := h.names[key]; entry != nil {
		entry.imageIDs[id] = true
	}
	return nil, true
}

// HasPullRecord reports whether an agent has recorded a pull of the image with this ID. Such an image can be pulled again.
// It returns false if Options.Records is not set.
func (p *Puller) HasPullRecord(id string) bool { return p.pullRecords.hasRecord(id) }

// errBeingRemoved is the error for an image that is present but claimed for too long.
var errBeingRemoved = errors.New("the image is being removed, and the removal takes too long")

// ensureUnclaimed ensures that the image is present and not being removed, and protects it from removal.
func (p *Puller) ensureUnclaimed(ctx context.Context, request Request) (cri.Image, error) {
	key := reference.Identity(request.Image)
	for range maxClaimWaits {
		earlierClaims := p.holds.countClaims()
		image, err := p.ensurePresent(ctx, request)
		if err != nil {
			return image, err
		}
		claimed, ok := p.holds.addImage(key, image.ID, earlierClaims)
		if ok {
			return image, nil
		}
		timer := time.NewTimer(callTimeout)
		select {
		case <-claimed:
		case <-timer.C:
			return cri.Image{}, newInspectError(request.Image, errBeingRemoved)
		case <-ctx.Done():
			timer.Stop()
			return cri.Image{}, ctx.Err()
		}
		timer.Stop()
	}
	return cri.Image{}, newInspectError(request.Image, errBeingRemoved)
}
