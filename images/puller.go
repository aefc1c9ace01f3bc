// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
	"github.com/seed81659283/nodeagent/images/internal/flight"
	"github.com/seed81659283/nodeagent/internal/reference"
	"github.com/seed81659283/nodeagent/internal/required"
)

// Options tune a [Puller]. The zero value is right for production, but for Records.
type Options struct {
	Parallel int     // pulls at the same time; zero means 5
	QPS      float64 // pulls that may begin each second, in the long run; zero means 5, less is no limit
	Burst    int     // pulls that may begin at once; zero means 10
	// LimitWait is how long a pull waits for the rate limit, in its pull slot. One whose wait would be longer fails
	// with "pull QPS exceeded". Zero means 1 minute; less is not at all, which is the kubelet's rule.
	LimitWait time.Duration

	// SlowAfter is when a pull that goes on releases its pull slot to the next one, so that pulls that hang cannot
	// take all. Zero means 1 minute; less is never, which is the kubelet's rule.
	SlowAfter time.Duration
	// PullTimeout is how long a pull may go on while the image file systems do not grow, where the runtime reports them.
	// Zero means 30 minutes; less is no limit, which is the kubelet's rule.
	PullTimeout time.Duration
	// PullLimit is how long a pull may take with all that it tries. Zero means 6 hours; less is no limit, which is the
	// kubelet's rule.
	PullLimit time.Duration

	// Providers are asked for credentials in this order, after the secrets of the pod. Nil: none.
	Providers []credential.Provider
	// Records is the directory of the records; the kubelet's is image_manager in its --root-dir. It is made when it
	// is needed. Empty: nothing is recorded, and every pod may use every image that is present.
	Records string
	// Verify says for which images that are present the records are asked; empty means [NeverVerifyPreloadedImages].
	Verify Verify
	// Allowlist names images that every pod may use, under [NeverVerifyAllowlistedImages]: as they stand in pods but
	// without tag and digest, or ending in "/*" for all that begin so. Nil: none.
	Allowlist []string

	Logger *slog.Logger // nil discards
	Hooks  Hooks
}

// Puller makes images present.
type Puller struct {
	images    cri.Images
	runtime   cri.Puller
	opts      Options
	verify    verifier
	records   *records      // nil: none are kept
	slots     chan struct{} // one element for each pull that holds a slot
	flights   flight.Group[outcome]
	progress  progress
	abandoned abandoned
	holds     holds

	mu      sync.Mutex // guards limit and backOff
	limit   rateLimit
	backOff backOff
}

// New returns a puller that looks for images with one interface of a runtime and pulls with the other. The error
// names an interface that is nil, or is about Options.Verify and Allowlist.
func New(images cri.Images, puller cri.Puller, o Options) (*Puller, error) {
	if err := required.Args("images.New", required.Arg{Name: "images", Value: images, Hint: "a *remote.Client"}, required.Arg{Name: "puller", Value: puller, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	if o.Parallel <= 0 {
		o.Parallel = 5
	}
	if o.QPS == 0 {
		o.QPS = 5
	}
	if o.Burst <= 0 {
		o.Burst = 10
	}
	o.LimitWait = cmp.Or(o.LimitWait, time.Minute)
	o.SlowAfter = cmp.Or(o.SlowAfter, time.Minute)
	o.PullTimeout = cmp.Or(o.PullTimeout, 30*time.Minute)
	o.PullLimit = cmp.Or(o.PullLimit, 6*time.Hour)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	v, err := newVerifier(o.Verify, o.Allowlist)
	if err == nil && o.Records == "" && (v.policy == AlwaysVerify || v.policy == NeverVerifyAllowlistedImages) {
		err = fmt.Errorf("verify: %s needs records", v.policy)
	}
	if err != nil {
		return nil, err
	}
	return &Puller{
		images:  images,
		runtime: puller,
		opts:    o,
		verify:  v,
		records: newRecords(o.Records),
		slots:   make(chan struct{}, o.Parallel),
		limit:   rateLimit{perSecond: max(o.QPS, 0), burst: float64(o.Burst)},
		backOff: make(backOff),
	}, nil
}

// want is one image that is wanted.
type want struct {
	Request
	ref  reference.Reference
	spec cri.ImageSpec
	// credentials finds those that may open the image, once, and what is wrong with the secrets of the pod.
	credentials func() ([]credential.Credential, error)
}

// Ensure returns the image that a container names, present on the node and allowed to the pod. It may take as long as
// a pull takes. The error is an [*Error], unless ctx was cancelled. What keeps the image there until the container is
// created is [Puller.Hold].
func (p *Puller) Ensure(ctx context.Context, r Request) (cri.Image, error) {
	defer p.Hold(r.Image)()
	image, err := p.ensureHeld(ctx, r)
	if e, ok := errors.AsType[*Error](err); ok && p.opts.Hooks.Failed != nil {
		p.opts.Hooks.Failed(r, e)
	}
	return image, err
}

func (p *Puller) ensure(ctx context.Context, r Request) (cri.Image, error) {
	ref, err := reference.Parse(r.Image)
	if err != nil {
		return cri.Image{}, &Error{Reason: ReasonInvalidImageName, Err: err}
	}
	if r.Policy == "" {
		r.Policy = DefaultPolicy(r.Image)
	}
	w := want{Request: r, ref: ref, spec: cri.ImageSpec{
		Image: ref.Tagged(), UserSpecifiedImage: r.Image, Annotations: r.Annotations, RuntimeHandler: r.RuntimeHandler,
	}}
	w.credentials = sync.OnceValues(func() ([]credential.Credential, error) { return p.credentials(ctx, r, ref) })
	if r.Policy == PullAlways {
		return p.pull(ctx, &w)
	}
	switch image, err := p.inspect(ctx, w.spec); {
	case err == nil && p.mayUse(&w, image):
		if p.opts.Hooks.Present != nil {
			p.opts.Hooks.Present(r, image)
		}
		return image, nil
	case err != nil && ctx.Err() == context.Canceled:
		return cri.Image{}, ctx.Err()
	case err != nil && !errors.Is(err, cri.ErrNotFound):
		return cri.Image{}, inspectError(r.Image, err)
	case r.Policy == PullNever: // the same for an image that is there and not for this pod: its presence is a secret
		return cri.Image{}, &Error{
			Reason: ReasonErrImageNeverPull,
			Err:    saying(cri.ErrNotFound, "Container image ", r.Image, " is not present with pull policy of Never"),
		}
	}
	return p.pull(ctx, &w)
}

// inspect asks the runtime for an image.
func (p *Puller) inspect(ctx context.Context, spec cri.ImageSpec) (cri.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx, p, callee[cri.Image]{
		name: "ImageStatus " + strconv.Quote(spec.Image),
		key:  "ImageStatus\n" + spec.Image + "\n" + spec.RuntimeHandler,
		make: func(ctx context.Context) (cri.Image, error) { return p.images.ImageStatus(ctx, spec) },
	})
}

// mayUse decides whether a pod may use an image that is present.
func (p *Puller) mayUse(w *want, image cri.Image) bool {
	if p.records == nil || p.verify.exempt(w.ref.Short) {
		return true
	}
	recorded, pulled, err := p.records.lookup(w.Image, w.ref.Short, image.ID)
	switch {
	case err != nil:
		p.report(fmt.Errorf("record of image %q: %w", w.Image, err))
		return false
	case !pulled:
		return p.verify.preloaded()
	case recorded.NodePodsAccessible:
		return true
	case recorded.equal(recordedCredentials{}):
		return false
	}
	shown, _ := w.credentials()
	ok, learned := access(recorded, shown)
	if !learned.equal(recordedCredentials{}) {
		if err := p.records.learn(w.ref.Short, image.ID, learned, time.Now()); err != nil {
			p.report(fmt.Errorf("record of image %q: %w", w.Image, err))
		}
	}
	return ok
}

// credentials collects what may open an image, in the order in which it is to be tried. The error is about the pod's
// own secrets; what is wrong with the node's providers is no business of the pod's.
func (p *Puller) credentials(ctx context.Context, r Request, ref reference.Reference) ([]credential.Credential, error) {
	ring := &credential.Keyring{}
	var unread []error
	for _, s := range r.Secrets {
		if err := ring.AddSecret(s); err != nil {
			p.report(err)
			unread = append(unread, err)
		}
	}
	found := ring.Lookup(ref.Repository())
	for i, provider := range p.opts.Providers {
		more, err := p.ask(ctx, i, provider, ref.Repository(), r.Pod)
		if err != nil {
			p.report(err)
		}
		found = append(found, more...)
	}
	return found, errors.Join(unread...)
}

// ask asks one of Options.Providers.
func (p *Puller) ask(
	ctx context.Context, i int, provider credential.Provider, repository string, pod credential.Pod,
) ([]credential.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	return call(ctx, p, callee[[]credential.Credential]{
		name: fmt.Sprintf("credential provider %d of %d for %q", i+1, len(p.opts.Providers), repository),
		key:  fmt.Sprintf("provider %d\n%s\n%s", i, repository, pod.UID),
		make: func(ctx context.Context) ([]credential.Credential, error) {
			return provider.Credentials(ctx, repository, pod)
		},
	})
}

// report is for what went wrong and did not decide.
func (p *Puller) report(err error) {
	p.opts.Logger.Warn("image puller works around an error", "error", err)
	if p.opts.Hooks.Error != nil {
		p.opts.Hooks.Error(err)
	}
}
