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

// ImageOptions configures an [Images]. Production use should set Puller, PodImages and Ages; zero values of all other fields are
// suitable.
type ImageOptions struct {
	// Policy decides when images are removed. Nil: [DefaultImagePolicy].
	Policy *ImagePolicy
	// Period is the time from the end of one collection of Run to the next. Zero: 5 minutes.
	Period time.Duration
	// Ages is the file that persists image ages. Empty: ages start anew with each process, as in the kubelet.
	Ages string

	// Puller pulls images concurrently; see [Puller]. Nil: images are removed without a claim, and those without digest count as
	// imported.
	Puller Puller
	// PodImages returns the image names in the specs of the node's pods. Nil: images that no container uses may be removed.
	PodImages func() []string
	// Ready reports whether PodImages includes all pods of the node. While it does not, no image is removed. Nil: it does.
	Ready func() bool

	// Disk measures the file system of images. Nil: the first image file system that the runtime reports.
	Disk func(ctx context.Context) (Disk, error)
	// Settle limits the total time that a pass waits for freed space to appear. Zero: 2 s; negative: no wait.
	Settle time.Duration

	Logger *slog.Logger // nil: no logs
	Hooks  ImageHooks
}

// Puller pulls the images of a node, possibly while an [Images] removes others. *images.Puller implements it.
type Puller interface {
	// Claim reserves an image for removal until release is called. ok is false if a pod is about to use the image, or was after
	// listed, the time at which the containers of the runtime were listed.
	Claim(image cri.Image, listed time.Time) (release func(), ok bool)
	// HasPullRecord reports whether there is a record of a pull of the image with this ID.
	HasPullRecord(id string) bool
	// Prune removes the records of images that are not in present, the images that existed at listed.
	Prune(present []cri.Image, listed time.Time) error
}

// ImageHooks are called by the goroutine that calls a method of [Images]. Each may be nil.
type ImageHooks struct {
	// Removed is called after the removal of each image.
	Removed func(image Image, reason RemovalReason)
	// Event is called for node events with a reason of this package.
	Event func(reason, message string)
	// Error is called for errors that do not end a pass, for example if the ages cannot be written or the disk cannot be
	// measured.
	Error func(err error)
}

// RemovalReason is the reason of an image removal, the label of the kubelet's metric image_garbage_collected_total.
type RemovalReason string

// The reasons of image removals.
const (
	RemovedForAge   RemovalReason = "age"
	RemovedForSpace RemovalReason = "space"
)

// The reasons of node events, as in the kubelet. Source: pkg/kubelet/events/event.go.
const (
	EventImageGCFailed       = "ImageGCFailed"
	EventContainerGCFailed   = "ContainerGCFailed"
	EventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	EventInvalidDiskCapacity = "InvalidDiskCapacity"
)

// callTimeout limits each call to the runtime: the kubelet's runtimeRequestTimeout.
const callTimeout = 2 * time.Minute

// Images removes unused images. [NewImages] creates it.
type Images struct {
	images    cri.Images
	lister    cri.Lister
	inspector cri.Inspector // nil: lists are complete
	policy    ImagePolicy
	opts      ImageOptions
	running   runonce.Guard
	removals  removeCalls

	passSlot chan struct{} // held by the running pass, which owns the fields below
	// firstPass is the start of the first pass; zero: none yet.
	firstPass time.Time
	ages      imageAges
	mounts    map[string][]string // images mounted by containers, by container ID
}

var _ ImageGC = (*Images)(nil)

// NewImages returns a collector of unused images. It uses images to list and remove images, and lister to list the
// containers that use them. Both are usually the same client of the runtime. The error names a nil argument or an invalid
// Options.Policy.
func NewImages(images cri.Images, lister cri.Lister, opts ImageOptions) (*Images, error) {
	if err := required.Args("gc.NewImages", required.Arg{Name: "images", Value: images, Hint: "a *remote.Client"}, required.Arg{Name: "lister", Value: lister, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	policy := DefaultImagePolicy()
	if opts.Policy != nil {
		policy = *opts.Policy
	}
	if err := policy.Validate(); err != nil {
		return nil, err
	}
	if opts.Period <= 0 {
		opts.Period = 5 * time.Minute
	}
	if opts.Settle == 0 {
		opts.Settle = 2 * time.Second
	}
	if opts.Disk == nil {
		opts.Disk = newDiskFunc(images)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Images{images: images, lister: lister, policy: policy, opts: opts, passSlot: make(chan struct{}, 1), ages: imageAges{path: opts.Ages}}
	g.inspector, _ = lister.(cri.Inspector)
	return g, nil
}

// Run calls [Images.Collect] at once and then every Options.Period. It calls [Images.Detect] instead if the policy never
// removes an image, and while Options.Ready returns false. It logs errors. It returns nil when ctx ends. A second call
// returns an error.
func (g *Images) Run(ctx context.Context) error {
	if err := g.running.Begin(); err != nil {
		return err
	}
	defer g.running.End()
	failures := 0
	for {
		pass := g.Collect
		if g.policy.isDisabled() || !g.podsComplete() {
			pass = g.Detect // keep ages current for later reclaims
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
			if failures > 1 { // the first failure may be a runtime that is starting
				g.recordEvent(EventImageGCFailed, err.Error())
			}
		}
		if sleep.For(ctx, g.opts.Period) != nil {
			return nil
		}
	}
}

// podsComplete reports whether all sources have reported their pods. Before that, the names of some needed images are
// unknown.
func (g *Images) podsComplete() bool { return g.opts.Ready == nil || g.opts.Ready() }

// acquirePass waits until no other method of g reads or removes images. The caller must call end when it has finished.
func (g *Images) acquirePass(ctx context.Context) (end func(), err error) {
	select {
	case g.passSlot <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for an earlier pass: %w", ctx.Err())
	}
	// The first call reads the ages file.
	if g.firstPass.IsZero() {
		g.firstPass = time.Now()
		if err := g.ages.readFile(g.firstPass); err != nil {
			g.reportError(err)
		}
	}
	return func() { <-g.passSlot }, nil
}

// Detect updates the ages of images as [Images.Collect] does, but removes no image.
func (g *Images) Detect(ctx context.Context) error {
	end, err := g.acquirePass(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = g.readState(ctx)
	return err
}

// Plan returns the images that [Images.Collect] would remove now, and the measured disk. It removes nothing. Collect may
// keep more images than planned, because only Collect calls Puller.Claim.
func (g *Images) Plan(ctx context.Context) (ImagePlan, Disk, error) {
	end, err := g.acquirePass(ctx)
	if err != nil {
		return ImagePlan{}, Disk{}, err
	}
	defer end()
	found, err := g.readState(ctx)
	if err != nil {
		return ImagePlan{}, Disk{}, err
	}
	disk, err := g.measureDisk(ctx)
	return found.plan, disk, err
}

// Collect removes images that were not used for MaxAge. If the file system of images is still too full, it also removes
// other unused images. Too little freed space is a [*ShortError].
func (g *Images) Collect(ctx context.Context) error {
	end, err := g.acquirePass(ctx)
	if err != nil {
		return err
	}
	defer end()
	found, err := g.readState(ctx)
	if err != nil {
		return err
	}
	work := g.newWork(found)
	for i := range found.plan.Old {
		if ctx.Err() != nil {
			break
		}
		work.removeImage(ctx, &found.plan.Old[i], RemovedForAge)
	}
	if err := errors.Join(work.errs...); err != nil && g.policy.Kubelet || ctx.Err() != nil {
		return errors.Join(work.finishPass(ctx), err, ctx.Err())
	}
	return g.makeRoom(ctx, work)
}

// makeRoom removes unused images if the file system of images is too full. Its error includes the errors in work, which are
// from the removals for age.
func (g *Images) makeRoom(ctx context.Context, work *passWork) error {
	aged := errors.Join(work.errs...)
	work.errs = nil
	disk, err := g.measureDisk(ctx)
	if err != nil {
		return errors.Join(work.finishPass(ctx), aged, err)
	}
	want, over, err := g.policy.Excess(disk)
	if err != nil {
		g.recordEvent(EventInvalidDiskCapacity, err.Error())
		return errors.Join(work.finishPass(ctx), aged, err)
	}
	if !over {
		return errors.Join(work.finishPass(ctx), aged)
	}
	g.opts.Logger.Info("images have to go", "usedPercent", disk.Used(), "bytes", want)
	err = work.freeSpace(ctx, want, disk)
	if _, short := errors.AsType[*ShortError](err); short && ctx.Err() == nil && (!g.policy.Kubelet || len(work.errs) == 0) {
		g.recordEvent(EventFreeDiskSpaceFailed, fmt.Sprintf("The file system of images is too full (%d%% of %s used), and what is left is no unused "+
			"image (freed %d bytes): images in use, logs, volumes or other files take the room.", disk.Used(), formatBytes(disk.Capacity), work.freed))
	}
	return errors.Join(aged, err)
}

// Reclaim removes unused images until the free space has grown by want bytes, and returns the number of freed bytes. See
// [ImageGC] for the order of removals and the errors.
func (g *Images) Reclaim(ctx context.Context, want uint64) (freed uint64, err error) {
	if want == 0 {
		return 0, nil
	}
	end, err := g.acquirePass(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	found, err := g.readState(ctx)
	if err != nil {
		return 0, err
	}
	if !g.policy.Kubelet { // the oldest images are removed first
		found.plan.Unused = append(found.plan.Old, found.plan.Unused...)
	} else {
		found.plan = PlanImages(ImagePolicy{MinAge: g.policy.MinAge, Kubelet: true}, found.state)
	}
	disk, err := g.measureDisk(ctx)
	if err != nil {
		g.reportError(err) // sizes are used instead
	}
	work := g.newWork(found)
	err = work.freeSpace(ctx, want, disk)
	return work.freed, err
}

// measureDisk calls Options.Disk with a timeout.
func (g *Images) measureDisk(ctx context.Context) (Disk, error) {
	ctx, cancel := context.WithTimeout(ctx, diskTimeout)
	defer cancel()
	return g.opts.Disk(ctx)
}

// diskTimeout limits a measurement of the file system.
const diskTimeout = 10 * time.Second

// reportError logs err and calls Hooks.Error. Callers use it for errors after which the collection continues.
func (g *Images) reportError(err error) {
	g.opts.Logger.Warn("image collector works around an error", "error", err)
	if g.opts.Hooks.Error != nil {
		g.opts.Hooks.Error(err)
	}
}

func (g *Images) recordEvent(reason, message string) {
	if g.opts.Hooks.Event != nil {
		g.opts.Hooks.Event(reason, message)
	}
}
