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
	// removeGrace is how long to wait for a removal whose context has ended before it is abandoned.
	removeGrace = 5 * time.Second
	// maxHanging is the number of abandoned removals at which no further removal starts.
	maxHanging = 10
	// settlePoll is the pause between measurements while freed space has not appeared.
	settlePoll = 50 * time.Millisecond
)

// passWork holds the removals of one pass, which is one collection, and their results.
type passWork struct {
	found *passState
	g     *Images

	removed    int
	kept       []KeptImage
	errs       []error
	settleLeft time.Duration // time left of ImageOptions.Settle
	freed      uint64
}

func (g *Images) newWork(f *passState) *passWork {
	return &passWork{g: g, found: f, kept: f.plan.Kept, settleLeft: max(g.opts.Settle, 0)}
}

// freeSpace removes unused images until the free space has grown by want bytes since the measurement before.
func (w *passWork) freeSpace(ctx context.Context, want uint64, before Disk) error {
	if want == 0 && !w.g.policy.Kubelet { // the kubelet removes one image in this case
		return w.finishPass(ctx)
	}
	var sizes uint64
	next := 0
	enough := func() bool {
		w.freed = w.measureFreed(ctx, want, sizes, before)
		return w.freed >= want
	}
	for ; next < len(w.found.plan.Unused) && ctx.Err() == nil; next++ {
		image := &w.found.plan.Unused[next]
		if w.removeImage(ctx, image, RemovedForSpace) {
			if sizes = addSaturated(sizes, image.Size); enough() {
				next++
				break
			}
		}
	}
	for _, image := range w.found.plan.Unused[next:] {
		w.kept = append(w.kept, KeptImage{image, KeepEnough})
	}
	if got := min(want, sizes); w.freed < got { // all removable images are removed; wait for the space to appear
		w.freed = w.measureFreed(ctx, got, sizes, before)
	}
	err := errors.Join(w.errs...)
	finished := w.finishPass(ctx)
	switch {
	case ctx.Err() != nil:
		return errors.Join(w.newShortError(want, err), ctx.Err(), finished)
	case w.freed >= want && w.g.policy.Kubelet, want == ReclaimAll:
		return errors.Join(err, finished)
	case w.freed >= want:
		for _, failed := range w.errs { // enough space was freed without it
			w.g.reportError(failed)
		}
		return finished
	}
	return errors.Join(w.newShortError(want, err), finished)
}

func (w *passWork) newShortError(want uint64, err error) error {
	return &ShortError{Wanted: want, Freed: w.freed, Kept: countKept(w.kept), Err: err}
}

// measureFreed returns by how many bytes the free space has grown since before. Without a measurement it returns the sizes
// of the removed images.
func (w *passWork) measureFreed(ctx context.Context, want, sizes uint64, before Disk) uint64 {
	if w.g.policy.Kubelet || before.Capacity == 0 {
		return sizes
	}
	for {
		now, err := w.g.measureDisk(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.g.reportError(err)
			}
			return sizes
		}
		more := max(now.Available, before.Available) - before.Available
		if more >= want || sizes < want || w.settleLeft <= 0 {
			return more
		}
		// Some file systems free space with a delay.
		w.settleLeft -= settlePoll
		if sleep.For(ctx, settlePoll) != nil {
			return more
		}
	}
}

// removeImage removes the image if Puller.Claim permits it. Otherwise it records why the image stays, and returns false.
func (w *passWork) removeImage(ctx context.Context, image *Image, reason RemovalReason) bool {
	listed := w.found.present[image.ID]
	release := func() {}
	if w.g.opts.Puller != nil {
		claim, ok := w.g.opts.Puller.Claim(listed, w.found.listed)
		if !ok {
			w.kept = append(w.kept, KeptImage{*image, KeepClaimed})
			return false
		}
		release = claim
	}
	if err := w.g.removals.removeImage(ctx, w.g.images, image.ID, release); err != nil {
		w.kept = append(w.kept, KeptImage{*image, KeepFailed})
		w.errs = append(w.errs, fmt.Errorf("remove image %s %q: %w", image.ID, image.Names, err))
		return false
	}
	w.removed++
	w.g.ages.removeImage(image.ID)
	w.g.opts.Logger.Info("image removed", "id", image.ID, "names", image.Names, "bytes", image.Size, "reason", string(reason))
	if hook := w.g.opts.Hooks.Removed; hook != nil {
		hook(*image, reason)
	}
	return true
}

// finishPass writes the ages, and removes the pull records of images that no longer exist. It does nothing if the pass has
// removed no image.
func (w *passWork) finishPass(ctx context.Context) error {
	if w.removed == 0 {
		return nil
	}
	w.removed = 0
	if err := w.g.ages.writeFile(); err != nil {
		w.g.reportError(err)
	}
	if w.g.opts.Puller == nil || ctx.Err() != nil {
		return nil // the next pass prunes these records
	}
	listed := time.Now()
	present, err := callWithTimeout(ctx, callTimeout, w.g.images.ListImages)
	if err == nil {
		err = w.g.opts.Puller.Prune(present, listed)
	}
	if err != nil {
		return fmt.Errorf("prune the records of pulled images: %w", err)
	}
	return nil
}

// removeCalls makes the removal calls to the runtime. A call that hangs after its context has ended is abandoned: its image stays
// claimed, and is not removed again before the call returns.
type removeCalls struct {
	mu      sync.Mutex      // guards running
	running map[string]bool // IDs of the images whose removal has not returned
}

var (
	errRemovalHangs = errors.New("an earlier removal has not returned although it was cancelled")
	errManyHang     = errors.New("too many other removals have not returned although they were cancelled")
)

// removeImage removes an image in the runtime and then calls release. It abandons a call that hangs after ctx has ended.
func (r *removeCalls) removeImage(ctx context.Context, images cri.Images, id string, release func()) error {
	if err := r.startCall(id); err != nil {
		release()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	done := make(chan error, 1)
	go func() {
		err := images.RemoveImage(ctx, cri.ImageSpec{Image: id})
		r.endCall(id)
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

// startCall registers a removal call. It returns an error if a call for this image or ten other calls still run.
func (r *removeCalls) startCall(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.running[id]:
		return errRemovalHangs
	case len(r.running) >= maxHanging:
		return errManyHang
	}
	if r.running == nil {
		r.running = map[string]bool{}
	}
	r.running[id] = true
	return nil
}

func (r *removeCalls) endCall(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
}
