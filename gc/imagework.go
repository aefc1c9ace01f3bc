// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

const (
	// removeGrace is how long a removal whose context has ended is waited for before it is left alone.
	removeGrace = 5 * time.Second
	// maxHanging is how many removals may be left alone before none other is begun.
	maxHanging = 10
	// settlePoll is the time between two looks at the room that comes late.
	settlePoll = 50 * time.Millisecond
)

// work is the removals of one pass.
type work struct {
	found *found
	g     *Images

	removed int
	kept    []Kept
	errs    []error
	settle  time.Duration // what is left of ImageOptions.Settle
	freed   uint64
}

func (g *Images) newWork(f *found) *work {
	return &work{g: g, found: f, kept: f.plan.Kept, settle: max(g.opts.Settle, 0)}
}

// free removes unused images until want more bytes are available than the disk had. A disk without capacity could not be measured.
func (w *work) free(ctx context.Context, want uint64, disk Disk) error {
	if want == 0 && !w.g.policy.Kubelet { // which removes one all the same
		return w.finish(ctx)
	}
	var sizes uint64
	next := 0
	enough := func() bool {
		w.freed = w.measure(ctx, want, sizes, disk)
		return w.freed >= want
	}
	for ; next < len(w.found.plan.Unused) && ctx.Err() == nil; next++ {
		image := &w.found.plan.Unused[next]
		if w.remove(ctx, image, RemovedForSpace) {
			if sizes = add(sizes, image.Size); enough() {
				next++
				break
			}
		}
	}
	for _, image := range w.found.plan.Unused[next:] {
		w.kept = append(w.kept, Kept{image, WhyEnough})
	}
	if got := min(want, sizes); w.freed < got { // all has gone that can, and is yet to be seen
		w.freed = w.measure(ctx, got, sizes, disk)
	}
	err := errors.Join(w.errs...)
	finished := w.finish(ctx)
	switch {
	case ctx.Err() != nil:
		return errors.Join(w.short(want, err), ctx.Err(), finished)
	case w.freed >= want && w.g.policy.Kubelet, want == All:
		return errors.Join(err, finished)
	case w.freed >= want:
		for _, failed := range w.errs { // it was not in the way
			w.g.report(failed)
		}
		return finished
	}
	return errors.Join(w.short(want, err), finished)
}

func (w *work) short(want uint64, err error) error {
	return &ShortError{Wanted: want, Freed: w.freed, Kept: tally(w.kept), Err: err}
}

// measure returns how many bytes more are available. Where images of that size are gone and there is less, it waits a while, as
// file systems give some back later.
func (w *work) measure(ctx context.Context, want, sizes uint64, before Disk) uint64 {
	if w.g.policy.Kubelet || before.Capacity == 0 {
		return sizes
	}
	for {
		now, err := w.g.disk(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.g.report(err)
			}
			return sizes
		}
		more := max(now.Available, before.Available) - before.Available
		if more >= want || sizes < want || w.settle <= 0 {
			return more
		}
		w.settle -= settlePoll
		if sleep.For(ctx, settlePoll) != nil {
			return more
		}
	}
}

// remove removes an image, and reports whether it is gone.
func (w *work) remove(ctx context.Context, image *Image, reason RemovalReason) bool {
	listed := w.found.present[image.ID]
	release := func() {}
	if w.g.opts.Puller != nil {
		claim, ok := w.g.opts.Puller.Claim(listed, w.found.listed)
		if !ok {
			w.kept = append(w.kept, Kept{*image, WhyHeld})
			return false
		}
		release = claim
	}
	if err := w.g.removals.remove(ctx, w.g.images, image.ID, release); err != nil {
		w.kept = append(w.kept, Kept{*image, WhyFailed})
		w.errs = append(w.errs, fmt.Errorf("remove image %s %q: %w", image.ID, image.Names, err))
		return false
	}
	w.removed++
	w.g.ages.forget(image.ID)
	w.g.opts.Logger.Info("image removed", "id", image.ID, "names", image.Names, "bytes", image.Size, "reason", string(reason))
	if hook := w.g.opts.Hooks.Removed; hook != nil {
		hook(*image, reason)
	}
	return true
}

// finish has the records of pulls follow what was removed.
func (w *work) finish(ctx context.Context) error {
	if w.removed == 0 {
		return nil
	}
	w.removed = 0
	if err := w.g.ages.save(); err != nil {
		w.g.report(err)
	}
	if w.g.opts.Puller == nil || ctx.Err() != nil {
		return nil // the next removal prunes what this one left
	}
	listed := time.Now()
	present, err := within(ctx, callTimeout, w.g.images.ListImages)
	if err == nil {
		err = w.g.opts.Puller.Prune(present, listed)
	}
	if err != nil {
		return fmt.Errorf("prune the records of pulled images: %w", err)
	}
	return nil
}

// removals makes the calls that remove images. One that does not return although its context has ended is left alone: the image
// stays claimed, and is not tried again before it returns.
type removals struct {
	mu      sync.Mutex // guards hanging
	hanging map[string]bool
}

var (
	errRemovalHangs = errors.New("an earlier removal has not returned although it was cancelled")
	errManyHang     = errors.New("too many other removals have not returned although they were cancelled")
)

// remove removes an image. Release is called when the call has returned.
func (r *removals) remove(ctx context.Context, images cri.Images, id string, release func()) error {
	if err := r.begin(id); err != nil {
		release()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	done := make(chan error, 1)
	go func() {
		err := images.RemoveImage(ctx, cri.ImageSpec{Image: id})
		r.end(id)
		release()
		done <- err
	}()
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(removeGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("the runtime has not returned %s after the end of the call: %w", removeGrace, ctx.Err())
	}
}

// begin takes note that a removal begins. What has ended by then is forgotten.
func (r *removals) begin(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.hanging[id]:
		return errRemovalHangs
	case len(r.hanging) >= maxHanging:
		return errManyHang
	}
	if r.hanging == nil {
		r.hanging = map[string]bool{}
	}
	r.hanging[id] = true
	return nil
}

func (r *removals) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hanging, id)
}
