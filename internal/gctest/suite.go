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

// Subject is a collector of images that [TestImageGC] tests, with the node that it is for. No image is too young to go, and none
// shares anything with another.
type Subject struct {
	GC gc.ImageGC
	// Load puts an unused image of about so many bytes on the node, and returns its ID.
	Load func(t *testing.T, name string, bytes uint64) (id string)
	// Use makes a container of an image.
	Use func(t *testing.T, id string)
	// Present returns the IDs of the images on the node.
	Present func(t *testing.T) []string
	// Size is how many bytes an image is to have. What it gives back may differ by a tenth.
	Size uint64
}

// TestImageGC checks that a collector does what the documentation of gc.ImageGC says. subject is called once for each case.
func TestImageGC(t *testing.T, subject func(t *testing.T) Subject) {
	cases := map[string]func(c *check){
		"Enough":   (*check).enough,
		"Short":    (*check).short,
		"Zero":     (*check).zero,
		"All":      (*check).all,
		"Canceled": (*check).canceled,
		"Together": (*check).together,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(&check{Check: &suite.Check{T: t}, Subject: subject(t)}) })
	}
}

// check is one case.
type check struct {
	*suite.Check
	Subject
}

// load puts unused images on the node.
func (c *check) load(names ...string) (ids []string) {
	for _, name := range names {
		ids = append(ids, c.Load(c.T, name, c.Size))
	}
	return ids
}

// left returns how many of these images are on the node.
func (c *check) left(ids []string) (n int) {
	present := c.Present(c.T)
	for _, id := range ids {
		if slices.Contains(present, id) {
			n++
		}
	}
	return n
}

func (c *check) enough() {
	ids := c.load("a", "b", "c")
	freed, err := c.GC.Reclaim(c.Context(), c.Size+c.Size/2)
	c.Succeed(err, ruleEnough, "Reclaim")
	c.Hold(freed >= c.Size+c.Size/2, ruleEnough, "freed %d bytes of %d", freed, c.Size+c.Size/2)
	c.Hold(c.left(ids) == 1, ruleEnough, "%d of 3 images are left, and one is not in the way", c.left(ids))
}

func (c *check) short() {
	ids := c.load("used", "unused")
	c.Use(c.T, ids[0])
	freed, err := c.GC.Reclaim(c.Context(), 100*c.Size)
	short, ok := errors.AsType[*gc.ShortError](err)
	c.Hold(ok, ruleShort, "Reclaim of more than there is: %v", err)
	c.Hold(short.Wanted == 100*c.Size && short.Freed == freed, ruleShort, "%+v, and freed %d", short, freed)
	c.Hold(freed >= c.Size-c.Size/10, ruleShort, "freed %d, and one image was unused", freed)
	kept := short.Kept[gc.WhyUsed]
	c.Hold(kept.Images == 1 && kept.Bytes > 0, ruleShort, "%+v does not say that one image is used", short.Kept)
	c.Hold(c.left(ids[:1]) == 1, ruleUsed, "the image of a container is gone")
	c.Hold(c.left(ids) == 1, ruleShort, "the unused image is left")
}

func (c *check) zero() {
	ids := c.load("a")
	freed, err := c.GC.Reclaim(c.Context(), 0)
	c.Succeed(err, ruleZero, "Reclaim")
	c.Hold(freed == 0 && c.left(ids) == 1, ruleZero, "freed %d, and %d of 1 image is left", freed, c.left(ids))
}

func (c *check) all() {
	ids := c.load("used", "a", "b")
	c.Use(c.T, ids[0])
	freed, err := c.GC.Reclaim(c.Context(), gc.All)
	c.Succeed(err, ruleAll, "Reclaim")
	c.Hold(freed >= 2*(c.Size-c.Size/10), ruleAll, "freed %d, and two images were unused", freed)
	c.Hold(c.left(ids) == 1 && c.left(ids[:1]) == 1, ruleAll, "of the used image and two others %d are left", c.left(ids))
}

func (c *check) canceled() {
	ids := c.load("a", "b")
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	freed, err := c.GC.Reclaim(ctx, c.Size)
	c.Hold(err != nil, ruleContext, "Reclaim succeeds although its context has ended")
	c.Hold(freed == 0 && c.left(ids) == 2, ruleContext, "freed %d, and %d of 2 images are left", freed, c.left(ids))
}

func (c *check) together() {
	ids := c.load("a", "b", "c", "d")
	var calls sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		calls.Go(func() { _, errs[i] = c.GC.Reclaim(c.Context(), c.Size-c.Size/10) })
	}
	calls.Wait()
	c.Succeed(errors.Join(errs...), ruleTogether, "two calls of Reclaim")
	c.Hold(c.left(ids) == 2, ruleTogether, "two calls that wanted one image each have left %d of 4", c.left(ids))
}
