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

// Options configures a [Puller]. Production use should set Records; zero values of all other fields are suitable.
type Options struct {
	Parallel int     // maximum number of concurrent pulls; zero: 5
	QPS      float64 // average number of pulls that may start per second; zero: 5; negative: no limit
	Burst    int     // number of pulls that may start at once; zero: 10
	// LimitWait is how long a pull may wait for the rate limit. It occupies a pull slot meanwhile. A pull that would have to wait
	// longer fails with "pull QPS exceeded". Zero: 1 minute; negative: no wait, as in the kubelet.
	LimitWait time.Duration

	// SlowAfter is the duration after which a running pull releases its slot, so that hung pulls cannot occupy all slots. Zero:
	// 1 minute; negative: never, as in the kubelet.
	SlowAfter time.Duration
	// PullTimeout is the time without growth of the image file systems after which a pull is stopped. It has no effect if the
	// runtime does not report them. Zero: 30 minutes; negative: no limit, as in the kubelet.
	PullTimeout time.Duration
	// PullLimit is the maximum duration of a pull with all its credentials. Zero: 6 hours; negative: no limit, as in the
	// kubelet.
	PullLimit time.Duration

	// Providers return credentials of the node. They are called in this order; the secrets of the pod are tried first. Nil:
	// none.
	Providers []credential.Provider
	// Records is the directory for the records of pulls, created when needed; the kubelet's is image_manager in its --root-dir.
	// Empty: no records, and every pod may use every image on the node.
	Records string
	// Verify selects the images that need a matching record. Empty: [NeverVerifyPreloadedImages].
	Verify VerifyPolicy
	// Allowlist has the images that every pod may use with [NeverVerifyAllowlistedImages]: names as in pods without tag and
	// digest, or prefixes that end in "/*". Nil: none.
	Allowlist []string

	Logger *slog.Logger // nil: no logs
	Hooks  Hooks
}

// Puller makes images available to the pods of a node. [New] creates it.
type Puller struct {
	images      cri.Images
	runtime     cri.Puller
	opts        Options
	verify      verifier
	pullRecords *recordStore  // nil: no records
	slots       chan struct{} // contains one element per occupied pull slot
	sharedPulls flight.Group[pullResult]
	progress    diskProgress
	hungCalls   hungCalls
	holds       holdTable

	mu        sync.Mutex // guards rateLimit and backOff
	rateLimit tokenBucket
	backOff   backOff
}

// New returns a Puller that inspects images with the argument images and pulls them with puller, usually the same client.
// It returns an error for a nil argument, and for an invalid Options.Verify or Allowlist.
func New(images cri.Images, puller cri.Puller, opts Options) (*Puller, error) {
	if err := required.Args("images.New", required.Arg{Name: "images", Value: images, Hint: "a *remote.Client"}, required.Arg{Name: "puller", Value: puller, Hint: "a *remote.Client"}); err != nil {
		return nil, err
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 5
	}
	if opts.QPS == 0 {
		opts.QPS = 5
	}
	if opts.Burst <= 0 {
		opts.Burst = 10
	}
	opts.LimitWait = cmp.Or(opts.LimitWait, time.Minute)
	opts.SlowAfter = cmp.Or(opts.SlowAfter, time.Minute)
	opts.PullTimeout = cmp.Or(opts.PullTimeout, 30*time.Minute)
	opts.PullLimit = cmp.Or(opts.PullLimit, 6*time.Hour)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	v, err := newVerifier(opts.Verify, opts.Allowlist)
	if err == nil && opts.Records == "" && (v.policy == AlwaysVerify || v.policy == NeverVerifyAllowlistedImages) {
		err = fmt.Errorf("verify: %s needs Options.Records", v.policy)
	}
	if err != nil {
		return nil, err
	}
	return &Puller{
		images:      images,
		runtime:     puller,
		opts:        opts,
		verify:      v,
		pullRecords: newRecordStore(opts.Records),
		slots:       make(chan struct{}, opts.Parallel),
		rateLimit:   tokenBucket{perSecond: max(opts.QPS, 0), burst: float64(opts.Burst)},
		backOff:     make(backOff),
	}, nil
}

// pullRequest is a [Request] with its parsed image name.
type pullRequest struct {
	Request
	reference reference.Reference
	spec      cri.ImageSpec
	// credentials returns the credentials for the image and the errors of the pod's unreadable secrets. It looks them up on its
	// first call.
	credentials func() ([]credential.Credential, error)
}

// Ensure returns the image that a pod needs. If necessary, it pulls the image, which may take hours. The error is an
// [*Error], unless ctx was cancelled. [Puller.Hold] keeps the image until its container is created.
func (p *Puller) Ensure(ctx context.Context, request Request) (cri.Image, error) {
	defer p.Hold(request.Image)()
	image, err := p.ensureUnclaimed(ctx, request)
	if e, ok := errors.AsType[*Error](err); ok && p.opts.Hooks.Failed != nil {
		p.opts.Hooks.Failed(request, e)
	}
	return image, err
}

// ensurePresent returns the requested image. Depending on the pull policy, it uses an image of the node or pulls it.
func (p *Puller) ensurePresent(ctx context.Context, request Request) (cri.Image, error) {
	ref, err := reference.Parse(request.Image)
	if err != nil {
		return cri.Image{}, &Error{Reason: ReasonInvalidImageName, Err: err}
	}
	if request.Policy == "" {
		request.Policy = DefaultPolicy(request.Image)
	}
	pending := pullRequest{Request: request, reference: ref, spec: cri.ImageSpec{
		Image: ref.Tagged(), UserSpecifiedImage: request.Image, Annotations: request.Annotations, RuntimeHandler: request.RuntimeHandler,
	}}
	pending.credentials = sync.OnceValues(func() ([]credential.Credential, error) { return p.findCredentials(ctx, request, ref) })
	if request.Policy == PullAlways {
		return p.pull(ctx, &pending)
	}
	switch image, err := p.imageStatus(ctx, pending.spec); {
	case err == nil && p.mayUseImage(&pending, image):
		if p.opts.Hooks.Present != nil {
			p.opts.Hooks.Present(request, image)
		}
		return image, nil
	case err != nil && ctx.Err() == context.Canceled:
		return cri.Image{}, ctx.Err()
	case err != nil && !errors.Is(err, cri.ErrNotFound):
		return cri.Image{}, newInspectError(request.Image, err)
	case request.Policy == PullNever: // same error as for an existing image that the pod may not use, so that its existence remains secret
		return cri.Image{}, &Error{
			Reason: ReasonErrImageNeverPull,
			Err:    newImageError(cri.ErrNotFound, "Container image ", request.Image, " is not present with pull policy of Never"),
		}
	}
	return p.pull(ctx, &pending)
}

// imageStatus returns the image that spec describes, as the runtime reports it.
func (p *Puller) imageStatus(ctx context.Context, spec cri.ImageSpec) (cri.Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return callOrAbandon(ctx, p, cancellableCall[cri.Image]{
		name:     "ImageStatus " + strconv.Quote(spec.Image),
		identity: "ImageStatus\n" + spec.Image + "\n" + spec.RuntimeHandler,
		run:      func(ctx context.Context) (cri.Image, error) { return p.images.ImageStatus(ctx, spec) },
	})
}

// mayUseImage reports whether the pod may use an image of the node without a pull, according to the verify policy.
func (p *Puller) mayUseImage(request *pullRequest, image cri.Image) bool {
	if p.pullRecords == nil || p.verify.isExempt(request.reference.Short) {
		return true
	}
	recorded, pulled, err := p.pullRecords.lookupCredentials(request.Image, request.reference.Short, image.ID)
	switch {
	case err != nil:
		p.reportError(fmt.Errorf("record of image %q: %w", request.Image, err))
		return false
	case !pulled:
		return p.verify.allowsPreloaded()
	case recorded.NodePodsAccessible:
		return true
	case recorded.isEqual(recordedCredentials{}):
		return false
	}
	credentials, _ := request.credentials()
	ok, learned := matchCredentials(recorded, credentials)
	if !learned.isEqual(recordedCredentials{}) {
		if err := p.pullRecords.addCredentials(request.reference.Short, image.ID, learned, time.Now()); err != nil {
			p.reportError(fmt.Errorf("record of image %q: %w", request.Image, err))
		}
	}
	return ok
}

// findCredentials returns the credentials for an image in the order to try them. The error reports unusable secrets of the
// pod.
func (p *Puller) findCredentials(ctx context.Context, request Request, ref reference.Reference) ([]credential.Credential, error) {
	ring := &credential.Keyring{}
	var secretErrs []error
	for _, s := range request.Secrets {
		if err := ring.AddSecret(s); err != nil {
			p.reportError(err)
			secretErrs = append(secretErrs, err)
		}
	}
	found := ring.Lookup(ref.Repository())
	for i, provider := range p.opts.Providers {
		more, err := p.askProvider(ctx, i, provider, ref.Repository(), request.Pod)
		if err != nil {
			p.reportError(err)
		}
		found = append(found, more...)
	}
	return found, errors.Join(secretErrs...)
}

// askProvider returns the credentials of the provider with this index in Options.Providers for the repository.
func (p *Puller) askProvider(
	ctx context.Context, index int, provider credential.Provider, repository string, pod credential.Pod,
) ([]credential.Credential, error) {
	ctx, cancel := context.WithTimeout(ctx, providerTimeout)
	defer cancel()
	return callOrAbandon(ctx, p, cancellableCall[[]credential.Credential]{
		name:     fmt.Sprintf("credential provider %d of %d for %q", index+1, len(p.opts.Providers), repository),
		identity: fmt.Sprintf("provider %d\n%s\n%s", index, repository, pod.UID),
		run: func(ctx context.Context) ([]credential.Credential, error) {
			return provider.Credentials(ctx, repository, pod)
		},
	})
}

// reportError logs err and calls Hooks.Error. Callers use it for errors that do not make Ensure fail.
func (p *Puller) reportError(err error) {
	p.opts.Logger.Warn("image puller works around an error", "error", err)
	if p.opts.Hooks.Error != nil {
		p.opts.Hooks.Error(err)
	}
}
