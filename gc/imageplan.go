// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"cmp"
	"slices"
	"time"
)

// Image is an image of the node, with what decides about it. The zero value of a fact does not keep it.
type Image struct {
	ID    string
	Names []string // its tags, or else its digests; for people
	Size  uint64   // bytes, as the runtime reports them

	FirstDetected time.Time // when it was first seen on the node
	LastUsed      time.Time // when a container was last seen that uses it; zero: none was

	Used     bool // a container is made of it, or mounts it
	Pinned   bool // the runtime says that it must stay
	Wanted   bool // a pod of the node names it
	Imported bool // no registry is known to have it: it has no digest, and nobody has a record of a pull
}

// ImageState is what [PlanImages] decides by.
type ImageState struct {
	Images []Image
	Now    time.Time
	// Began is when the collector began, for ImagePolicy.Kubelet: before MaxAge has passed since then nothing goes by it.
	Began time.Time
}

// Kept is an image that stays.
type Kept struct {
	Image
	Why Why
}

// ImagePlan says which images may go, in the order in which they do.
type ImagePlan struct {
	Old    []Image // unused for longer than ImagePolicy.MaxAge: they go in any case
	Unused []Image // they go until there is room enough
	Kept   []Kept
}

// First returns how many of the unused images have to go to give so many bytes, if each gives what its size says, and how
// many bytes that are. Zero bytes take none.
func (p *ImagePlan) First(want uint64) (images int, bytes uint64) {
	for images < len(p.Unused) && bytes < want {
		bytes = add(bytes, p.Unused[images].Size)
		images++
	}
	return images, bytes
}

// PlanImages decides which images go: those that nothing uses, wants or keeps, first the one that was used the longest time
// ago, of those that were never used the one that has been there for the longest time. It is pure, and its plan does not depend
// on the order of the images. Source: imagesInEvictionOrder, freeOldImages and freeSpace in
// pkg/kubelet/images/image_gc_manager.go.
func PlanImages(p ImagePolicy, s ImageState) ImagePlan {
	var plan ImagePlan
	candidates := make([]candidate, 0, len(s.Images))
	for i := range s.Images {
		if why := keeps(&p, &s.Images[i]); why != "" {
			plan.Kept = append(plan.Kept, Kept{s.Images[i], why})
		} else {
			candidates = append(candidates, newCandidate(&s.Images[i]))
		}
	}
	slices.SortFunc(candidates, candidate.compare)
	plan.Unused = make([]Image, 0, len(candidates))
	for i := range candidates {
		switch c := candidates[i].image; {
		case p.tooOld(c, &s):
			plan.Old = append(plan.Old, *c)
		case p.young(c, s.Now):
			plan.Kept = append(plan.Kept, Kept{*c, WhyYoung})
		default:
			plan.Unused = append(plan.Unused, *c)
		}
	}
	return plan
}

// candidate is an image that may go, with its times as numbers: there may be ten thousand to put in order.
type candidate struct {
	used, detected int64 // nanoseconds since 1970; before that zero
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

// compare is the order in which images go.
func (c candidate) compare(d candidate) int {
	switch {
	case c.used != d.used:
		return cmp.Compare(c.used, d.used)
	case c.detected != d.detected:
		return cmp.Compare(c.detected, d.detected)
	}
	return cmp.Compare(c.image.ID, d.image.ID)
}

// keeps returns why an image stays whatever its age, or nothing.
func keeps(p *ImagePolicy, i *Image) Why {
	switch {
	case i.ID == "":
		return WhyInvalid
	case i.Used:
		return WhyUsed
	case i.Pinned:
		return WhyPinned
	case i.Wanted:
		return WhyWanted
	case i.Imported && !p.Kubelet:
		return WhyImported
	}
	return ""
}

// young reports whether an image is too young to go. One that is used in the time to come, as a clock that was set back has it,
// is.
func (p *ImagePolicy) young(i *Image, now time.Time) bool {
	return !i.LastUsed.Before(now) || now.Sub(i.FirstDetected) < p.MinAge
}

// tooOld reports whether an image goes for its age alone.
func (p *ImagePolicy) tooOld(i *Image, s *ImageState) bool {
	switch {
	case p.MaxAge == 0:
		return false
	case p.Kubelet:
		return s.Now.Sub(s.Began) > p.MaxAge && s.Now.Sub(i.LastUsed) > p.MaxAge
	}
	since := i.LastUsed
	if since.Before(i.FirstDetected) {
		since = i.FirstDetected
	}
	return !p.young(i, s.Now) && s.Now.Sub(since) > p.MaxAge
}
