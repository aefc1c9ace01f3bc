// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gctest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/suite"
)

// Subject is a collector that [TestImageGC] tests, with functions that change its node. The collector must not have a minimum
// image age, and the images must not share layers.
type Subject struct {
	Collector gc.ImageGC
	// AddImage adds an unused image of about this size to the node and returns its ID.
	AddImage func(t *testing.T, name string, bytes uint64) (id string)
	// AddContainer adds a container that uses an image.
	AddContainer func(t *testing.T, imageID string)
	// ImageIDs returns the IDs of all images on the node.
	ImageIDs func(t *testing.T) []string
	// ImageSize is the size in bytes of the images that the suite adds. The space freed by their removal may differ by a tenth.
	ImageSize uint64
}

// TestImageGC tests that an image collector behaves as the documentation of gc.ImageGC requires. newSubject returns a
// collector with its own simulated node; TestImageGC calls it once per test case.
func TestImageGC(t *testing.T, newSubject func(t *testing.T) Subject) {
	cases := map[string]func(c *check){
		"Enough":   (*check).enough,
		"Short":    (*check).short,
		"Zero":     (*check).zero,
		"All":      (*check).all,
		"Canceled": (*check).canceled,
		"Together": (*check).together,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(&check{Check: &suite.Check{T: t}, Subject: newSubject(t)}) })
	}
}

// check is one test case.
type check struct {
	*suite.Check
	Subject
}

// loadUnused adds an unused image with each of these names, and returns the image IDs.
func (c *check) loadUnused(names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, c.AddImage(c.T, name, c.ImageSize))
	}
	return ids
}

// countPresent returns how many of the images with these IDs are still on the node.
func (c *check) countPresent(ids []string) (count int) {
	present := c.ImageIDs(c.T)
	for _, id := range ids {
		if slices.Contains(present, id) {
			count++
		}
	}
	return count
}

func (c *check) enough() {
	ids := c.loadUnused("a", "b", "c")
	freed, err := c.Collector.Reclaim(c.Context(), c.ImageSize+c.ImageSize/2)
	c.Succeed(err, ruleEnough, "Reclaim")
	c.Hold(freed >= c.ImageSize+c.ImageSize/2, ruleEnough, "freed %d bytes of %d", freed, c.ImageSize+c.ImageSize/2)
	c.Hold(c.countPresent(ids) == 1, ruleEnough, "%d of 3 images are left, and one is not in the way", c.countPresent(ids))
}

func (c *check) short() {
	ids := c.loadUnused("used", "unused")
	c.AddContainer(c.T, ids[0])
	freed, err := c.Collector.Reclaim(c.Context(), 100*c.ImageSize)
	short, ok := errors.AsType[*gc.ShortError](err)
	c.Hold(ok, ruleShort, "Reclaim of more than there is: %v", err)
	c.Hold(short.Wanted == 100*c.ImageSize && short.Freed == freed, ruleShort, "%+v, and freed %d", short, freed)
	c.Hold(freed >= c.ImageSize-c.ImageSize/10, ruleShort, "freed %d, and one image was unused", freed)
	kept := short.Kept[gc.KeepUsed]
	c.Hold(kept.Images == 1 && kept.Bytes > 0, ruleShort, "%+v does not say that one image is used", short.Kept)
	c.Hold(c.countPresent(ids[:1]) == 1, ruleUsed, "the image of a container is gone")
	c.Hold(c.countPresent(ids) == 1, ruleShort, "the unused image is left")
}

func (c *check) zero() {
	ids := c.loadUnused("a")
	freed, err := c.Collector.Reclaim(c.Context(), 0)
	c.Succeed(err, ruleZero, "Reclaim")
	c.Hold(freed == 0 && c.countPresent(ids) == 1, ruleZero, "freed %d, and %d of 1 image is left", freed, c.countPresent(ids))
}

func (c *check) all() {
	ids := c.loadUnused("used", "a", "b")
	c.AddContainer(c.T, ids[0])
	freed, err := c.Collector.Reclaim(c.Context(), gc.ReclaimAll)
	c.Succeed(err, ruleAll, "Reclaim")
	c.Hold(freed >= 2*(c.ImageSize-c.ImageSize/10), ruleAll, "freed %d, and two images were unused", freed)
	c.Hold(c.countPresent(ids) == 1 && c.countPresent(ids[:1]) == 1, ruleAll, "of the used image and two others %d are left", c.countPresent(ids))
}

func (c *check) canceled() {
	ids := c.loadUnused("a", "b")
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	freed, err := c.Collector.Reclaim(ctx, c.ImageSize)
	c.Hold(err != nil, ruleContext, "Reclaim succeeds although its context has ended")
	c.Hold(freed == 0 && c.countPresent(ids) == 2, ruleContext, "freed %d, and %d of 2 images are left", freed, c.countPresent(ids))
}

func (c *check) together() {
	ids := c.loadUnused("a", "b", "c", "d")
	var calls sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		calls.Go(func() { _, errs[i] = c.Collector.Reclaim(c.Context(), c.ImageSize-c.ImageSize/10) })
	}
	calls.Wait()
	c.Succeed(errors.Join(errs...), ruleTogether, "two calls of Reclaim")
	c.Hold(c.countPresent(ids) == 2, ruleTogether, "two calls that wanted one image each have left %d of 4", c.countPresent(ids))
}
