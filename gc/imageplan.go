// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"slices"
	"time"
)

// Image is an image of the node with the properties that decide about its removal.
type Image struct {
	ID    string
	Names []string // tags, or digests if it has no tags; for logs
	Size  uint64   // size in bytes reported by the runtime

	FirstDetected time.Time // when it was first listed on the node
	LastUsed      time.Time // when a container was last seen to use it; zero: never

	Used       bool // a container is created from it or mounts it
	Pinned     bool // the runtime reports it as pinned
	NamedByPod bool // a pod of the node names it
	Imported   bool // no registry is known to have it: it has no digest and no record of a pull
}

// ImageState is the input of [PlanImages].
type ImageState struct {
	Images []Image
	Now    time.Time
	// Began is the start of the collector. With ImagePolicy.Kubelet no image is removed for its age until MaxAge after Began.
	Began time.Time
}

// KeptImage is an image that stays, with the reason.
type KeptImage struct {
	Image
	Reason KeepReason
}

// ImagePlan lists the images to remove, in order.
type ImagePlan struct {
	Old    []Image // unused for longer than ImagePolicy.MaxAge: removed in any case
	Unused []Image // removed until enough space is free
	Kept   []KeptImage
}

// CountToFree returns the number and the total size of the unused images that must be removed to free want bytes. If all
// unused images are not enough, it counts them all.
func (p *ImagePlan) CountToFree(want uint64) (images int, bytes uint64) {
	for images < len(p.Unused) && bytes < want {
		bytes = addSaturated(bytes, p.Unused[images].Size)
		images++
	}
	return images, bytes
}

// PlanImages returns which images to remove and which to keep. Images that were never used come first, then the least
// recently used ones. An image stays if a container uses it or another reason in [KeptImage] applies. Source:
// imagesInEvictionOrder, freeOldImages and freeSpace in pkg/kubelet/images/image_gc_manager.go.
func PlanImages(policy ImagePolicy, state ImageState) ImagePlan {
	var plan ImagePlan
	candidates := make([]candidate, 0, len(state.Images))
	for i := range state.Images {
		if why := keepReason(&policy, &state.Images[i]); why != "" {
			plan.Kept = append(plan.Kept, KeptImage{state.Images[i], why})
		} else {
			candidates = append(candidates, newCandidate(&state.Images[i]))
		}
	}
	slices.SortFunc(candidates, candidate.compareRemovalOrder)
	plan.Unused = make([]Image, 0, len(candidates))
	for i := range candidates {
		switch c := candidates[i].image; {
		case policy.isTooOld(c, &state):
			plan.Old = append(plan.Old, *c)
		case policy.isYoung(c, state.Now):
			plan.Kept = append(plan.Kept, KeptImage{*c, KeepYoung})
		default:
			plan.Unused = append(plan.Unused, *c)
		}
	}
	return plan
}

// candidate is an image that may be removed. Its times are numbers, because sorting ten thousand images compares them often.
type candidate struct {
	used, detected int64 // nanoseconds since 1970; zero for earlier times
	image          *Image
}

func newCandidate(i *Image) candidate {
	number := func(t time.Time) int64 {
		if t.Unix() < 0 {
			return 0
		}
		return t.UnixNano()
	}
	return candidate{number(i.LastUsed), number(i.FirstDetected), i}
}

// compareRemovalOrder returns a negative number if c is removed before d, and a positive number if it is removed after d.
func (c candidate) compareRemovalOrder(d candidate) int {
	switch {
	case c.used != d.used:
		return cmp.Compare(c.used, d.used)
	case c.detected != d.detected:
		return cmp.Compare(c.detected, d.detected)
	}
	return cmp.Compare(c.image.ID, d.image.ID)
}

// keepReason returns the reason to keep an image regardless of its age. It returns "" if there is no such reason.
func keepReason(policy *ImagePolicy, image *Image) KeepReason {
	switch {
	case image.ID == "":
		return KeepInvalid
	case image.Used:
		return KeepUsed
	case image.Pinned:
		return KeepPinned
	case image.NamedByPod:
		return KeepNamed
	case image.Imported && !policy.Kubelet:
		return KeepImported
	}
	return ""
}

// isYoung reports whether the image is too young to be removed.
func (p *ImagePolicy) isYoung(image *Image, now time.Time) bool {
	// A last use in the future shows that the clock was set back: the age is unknown.
	return !image.LastUsed.Before(now) || now.Sub(image.FirstDetected) < p.MinAge
}

// isTooOld reports whether the image has been unused for longer than p.MaxAge. Such an image is removed even if the disk has
// enough free space.
func (p *ImagePolicy) isTooOld(image *Image, state *ImageState) bool {
	switch {
	case p.MaxAge == 0:
		return false
	case p.Kubelet:
		return state.Now.Sub(state.Began) > p.MaxAge && state.Now.Sub(image.LastUsed) > p.MaxAge
	}
	since := image.LastUsed
	if since.Before(image.FirstDetected) {
		since = image.FirstDetected
	}
	return !p.isYoung(image, state.Now) && state.Now.Sub(since) > p.MaxAge
}
