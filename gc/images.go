// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// ImageOptions tune an [Images]. The zero value is right for production, but for Puller, Wanted and Ages.
type ImageOptions struct {
	// Policy says when images go. Nil means [DefaultImagePolicy].
	Policy *ImagePolicy
	// Period is the time between two passes of Run. Zero means 5 minutes.
	Period time.Duration
	// Ages is a file that ages are kept in. Empty: all begin anew with the program, as in the kubelet.
	Ages string

	// Puller pulls images beside this. Nil: nobody is asked whether an image is about to be used or was ever pulled.
	Puller Puller
	// Wanted returns the images that pods of the node name, as they stand there. Nil: nothing is wanted but what is used.
	Wanted func() []string
	// Ready reports whether Wanted knows all pods of the node. While it does not, no image goes. Nil: it does.
	Ready func() bool

	// Disk measures the file system of images. Nil measures the first image file system that the runtime names.
	Disk func(ctx context.Context) (Disk, error)
	// Settle is how long a pass waits in all for room that comes later than its removals. Zero means 2 s; less: not at all.
	Settle time.Duration

	Logger *slog.Logger // nil discards
	Hooks  ImageHooks
}

// Puller is who pulls the images of a node, beside whom others are removed. *images.Puller is one.
type Puller interface {
	// Claim makes an image the caller's to remove until release is called, or does not: it is or was about to be used since listed,
	// which is when the runtime was asked for its containers.
	Claim(image cri.Image, listed time.Time) (release func(), ok bool)
	// Pulled reports whether there is a record of a pull of the image with an ID.
	Pulled(id string) bool
	// Prune is told which images there are after some were removed, and when they were listed.
	Prune(present []cri.Image, listed time.Time) error
}

// ImageHooks are told what happens, by the goroutine that calls a method of [Images]. Any may be nil.
type ImageHooks struct {
	// Removed is called for each image that was removed, by age or for space.
	Removed func(image Image, reason RemovalReason)
	// Event is called for what the events of a node say, with one of the reasons of this package.
	Event func(reason, message string)
	// Error is called for what went wrong and did not end the pass: ages cannot be kept, the disk cannot be measured.
	Error func(err error)
}

// RemovalReason is why an image was removed: the label of the kubelet's metric image_garbage_collected_total.
type RemovalReason string

// Why images are removed.
const (
	RemovedForAge   RemovalReason = "age"
	RemovedForSpace RemovalReason = "space"
)

// The reasons of events, as the kubelet has them. Source: pkg/kubelet/events/event.go.
const (
	EventImageGCFailed       = "ImageGCFailed"
	EventContainerGCFailed   = "ContainerGCFailed"
	EventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	EventInvalidDiskCapacity = "InvalidDiskCapacity"
)

// callTimeout is how long one call to the runtime may take: the kubelet's runtimeRequestTimeout.
const callTimeout = 2 * time.Minute

// Images removes the images that a node does not need. Make one with [NewImages].
type Images struct {
	images    cri.Images
	lister    cri.Lister
	inspector cri.Inspector // nil: lists are complete
	policy    ImagePolicy
	opts      ImageOptions
	running   runonce.Guard
	removals  removals

	turn chan struct{} // has an element while a pass is made; whoever has put it there has what follows
	// began is when the first pass was made; zero: there was none.
	began  time.Time
	ages   ages
	mounts map[string][]string // the images that containers mount, by container ID
}

var _ ImageGC = (*Images)(nil)

// NewImages returns a collector that removes images through one interface of a runtime, and finds those that are used through
// another. It starts nothing. The error is about Options.Policy, or names an interface that is nil.
func NewImages(images cri.Images, lister cri.Lister, o ImageOptions) (*Images, error) {
	if err := required.Args("gc.NewImages", required.Arg{Name: "images", Value: images, Hint: "a *remote.Client"}, required.Arg{Name: "lister", Value: lister, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	policy := DefaultImagePolicy()
	if o.Policy != nil {
		policy = *o.Policy
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if o.Period <= 0 {
		o.Period = 5 * time.Minute
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Second
	}
	if o.Disk == nil {
		o.Disk = measureDisk(images)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Images{images: images, lister: lister, policy: policy, opts: o, turn: make(chan struct{}, 1), ages: ages{path: o.Ages}}
	g.inspector, _ = lister.(cri.Inspector)
	return g, nil
}

// Run makes a pass at once, and then one each Options.Period, until ctx ends. It returns an error when it is called twice.
func (g *Images) Run(ctx context.Context) error {
	if err := g.running.Begin(); err != nil {
		return err
	}
	defer g.running.End()
	failures := 0
	for {
		pass := g.Collect
		if g.policy.never() || !g.ready() {
			pass = g.Detect // so that ages are known when somebody reclaims
		}
		err := pass(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			failures = 0
		default:
			failures++
			g.opts.Logger.Error("images were not collected as they should be", "error", err, "inARow", failures)
			if failures > 1 { // the first may be of a runtime that is only starting
				g.event(EventImageGCFailed, err.Error())
			}
		}
		if sleep.For(ctx, g.opts.Period) != nil {
			return nil
		}
	}
}

// ready reports whether all pods are known that may name an image.
func (g *Images) ready() bool { return g.opts.Ready == nil || g.opts.Ready() }

// begin waits for the turn of a caller.
func (g *Images) begin(ctx context.Context) (end func(), err error) {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an earlier pass: %w", ctx.Err())
	}
	if g.began.IsZero() {
		g.began = time.Now()
		if err := g.ages.load(g.began); err != nil {
			g.report(err)
		}
	}
	return func() { <-g.turn }, nil
}

// Detect takes note of the images that there are and of those that are used, and removes nothing. It is what keeps ages between
// passes.
func (g *Images) Detect(ctx context.Context) error {
	end, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = g.detect(ctx)
	return err
}

// Plan returns what Collect would do now, and what the file system has. It removes nothing. Whether whoever pulls gives an image
// away is found out when it is to be removed.
func (g *Images) Plan(ctx context.Context) (ImagePlan, Disk, error) {
	end, err := g.begin(ctx)
	if err != nil {
		return ImagePlan{}, Disk{}, err
	}
	defer end()
	found, err := g.detect(ctx)
	if err != nil {
		return ImagePlan{}, Disk{}, err
	}
	disk, err := g.disk(ctx)
	return found.plan, disk, err
}

// Collect makes one pass: images that are too old go, and where the file system of images is too full, unused ones until it
// is not. Where it still is, the error is a [*ShortError].
func (g *Images) Collect(ctx context.Context) error {
	end, err := g.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	found, err := g.detect(ctx)
	if err != nil {
		return err
	}
	work := g.newWork(found)
	for i := range found.plan.Old {
		if ctx.Err() != nil {
			break
		}
		work.remove(ctx, &found.plan.Old[i], RemovedForAge)
	}
	if err := errors.Join(work.errs...); err != nil && g.policy.Kubelet || ctx.Err() != nil {
		return errors.Join(work.finish(ctx), err, ctx.Err())
	}
	return g.makeRoom(ctx, work)
}

// makeRoom removes images where the file system is too full. Old ones are gone by then.
func (g *Images) makeRoom(ctx context.Context, work *work) error {
	aged := errors.Join(work.errs...)
	work.errs = nil
	disk, err := g.disk(ctx)
	if err != nil {
		return errors.Join(work.finish(ctx), aged, err)
	}
	want, over, err := g.policy.Excess(disk)
	if err != nil {
		g.event(EventInvalidDiskCapacity, err.Error())
		return errors.Join(work.finish(ctx), aged, err)
	}
	if !over {
		return errors.Join(work.finish(ctx), aged)
	}
	g.opts.Logger.Info("images have to go", "usedPercent", disk.Used(), "bytes", want)
	err = work.free(ctx, want, disk)
	if _, short := errors.AsType[*ShortError](err); short && ctx.Err() == nil && (!g.policy.Kubelet || len(work.errs) == 0) {
		g.event(EventFreeDiskSpaceFailed, fmt.Sprintf("The file system of images is too full (%d%% of %s used), and what is left is no unused "+
			"image (freed %d bytes): images in use, logs, volumes or other files take the room.", disk.Used(), size(disk.Capacity), work.freed))
	}
	return errors.Join(aged, err)
}

// Reclaim removes unused images until want more bytes are available; see [ImageGC].
func (g *Images) Reclaim(ctx context.Context, want uint64) (freed uint64, err error) {
	if want == 0 {
		return 0, nil
	}
	end, err := g.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	found, err := g.detect(ctx)
	if err != nil {
		return 0, err
	}
	if !g.policy.Kubelet { // what is too old is the first to go
		found.plan.Unused = append(found.plan.Old, found.plan.Unused...)
	} else {
		found.plan = PlanImages(ImagePolicy{MinAge: g.policy.MinAge, Kubelet: true}, found.state)
	}
	disk, err := g.disk(ctx)
	if err != nil {
		g.report(err) // sizes have to do
	}
	work := g.newWork(found)
	err = work.free(ctx, want, disk)
	return work.freed, err
}

// disk measures the file system, in time.
func (g *Images) disk(ctx context.Context) (Disk, error) {
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	return g.opts.Disk(ctx)
}

// diskTimeout is how long the file system may take to say what it has.
const diskTimeout = 10 * time.Second

// report is for what went wrong and did not end the pass.
func (g *Images) report(err error) {
	g.opts.Logger.Warn("image collector works around an error", "error", err)
	if g.opts.Hooks.Error != nil {
		g.opts.Hooks.Error(err)
	}
}

func (g *Images) event(reason, message string) {
	if g.opts.Hooks.Event != nil {
		g.opts.Hooks.Event(reason, message)
	}
}
