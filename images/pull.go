// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/images/credential"
)

// pullResult is the result of a pull. Calls that share the pull share the result.
type pullResult struct {
	imageRef       string // image reference returned by the runtime; empty: not pulled
	image          cri.Image
	usedCredential int // index of the successful credential; -1: pulled without credentials
	attempts       int
	duration       time.Duration
	leader         *pullRequest // the request whose call made the pull
	// abandoned means that the call to the runtime has not returned and may still bring the image.
	abandoned bool
}

// pull pulls the image of the request. During the back-off after a failed pull it returns an [*Error] at once.
func (p *Puller) pull(ctx context.Context, request *pullRequest) (cri.Image, error) {
	key := backOffKey{podUID: request.Pod.UID, image: request.Image}
	if f, ok := p.activeFailure(key); ok {
		return cri.Image{}, &Error{
			Reason: ReasonImagePullBackOff, Retry: f.retryTime(),
			Err: newImageError(f.err, "Back-off pulling image ", request.Image, ": "+f.err.Error()),
		}
	}
	if p.opts.Hooks.Pulling != nil {
		p.opts.Hooks.Pulling(request.Request)
	}
	start := time.Now()
	credentials, secretErr := request.credentials()
	result, err := p.sharePull(ctx, request, credentials)
	if ctx.Err() == context.Canceled && err != nil {
		return cri.Image{}, ctx.Err()
	}
	if err != nil {
		return cri.Image{}, p.recordFailure(key, err, secretErr)
	}
	p.opts.Logger.Debug("image pulled", "image", request.Image, "pod", request.Pod.Namespace+"/"+request.Pod.Name, "took", result.duration)
	if p.opts.Hooks.Pulled != nil {
		p.opts.Hooks.Pulled(request.Request, Pull{
			Image: result.image, Took: result.duration, Total: time.Since(start), Shared: result.leader != request, Attempts: result.attempts,
		})
	}
	return result.image, nil
}

// sharePull pulls the image, or waits for a running pull with equal credentials. It records the start and the result.
func (p *Puller) sharePull(ctx context.Context, request *pullRequest, credentials []credential.Credential) (pullResult, error) {
	if err := p.pullRecords.recordPullStart(request.Image); err != nil {
		return pullResult{}, fmt.Errorf("record the pull of image %q: %w", request.Image, err)
	}
	result, err := p.sharedPulls.Do(ctx, newPullKey(request, credentials), func(ctx context.Context) (pullResult, error) {
		return p.pullInSlot(ctx, request, credentials)
	})
	if result.abandoned && result.leader == request {
		return result, err // the intent remains until the abandoned call returns
	}
	if result.imageRef == "" {
		if err := p.pullRecords.recordPullEnd(request.Image); err != nil {
			p.reportError(fmt.Errorf("record the end of the pull of image %q: %w", request.Image, err))
		}
		return result, err
	}
	var used *credential.Credential
	if result.usedCredential >= 0 {
		used = &credentials[result.usedCredential]
	}
	id := result.image.ID
	if id == "" {
		id = result.imageRef
	}
	if err := p.pullRecords.recordPullSuccess(request.Image, request.reference.Short, id, newRecordedCredentials(used), time.Now()); err != nil {
		p.reportError(fmt.Errorf("record the pull of image %q: %w", request.Image, err))
	}
	return result, err
}

// newPullKey returns the key of pulls that can be shared: image, runtime handler and hashes of the credentials.
func newPullKey(request *pullRequest, credentials []credential.Credential) string {
	key := []string{request.spec.Image, request.spec.RuntimeHandler}
	for _, c := range credentials {
		key = append(key, c.Hash())
	}
	return strings.Join(key, "\n")
}

// pullInSlot waits for a free pull slot and the rate limit, pulls the image and reads its status from the runtime.
func (p *Puller) pullInSlot(ctx context.Context, request *pullRequest, credentials []credential.Credential) (pullResult, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return pullResult{}, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-p.slots })
	defer release()
	if err := p.waitForToken(ctx); err != nil {
		return pullResult{}, err
	}
	start := time.Now()
	pullCtx, end := p.guardPull(ctx, request, release)
	result, err := p.tryCredentials(pullCtx, request, credentials)
	end()
	result.duration = time.Since(start)
	if err != nil {
		return result, err
	}
	result.image, err = p.imageStatus(ctx, cri.ImageSpec{Image: result.imageRef, RuntimeHandler: request.RuntimeHandler})
	if err != nil {
		return result, newInspectError(request.Image, err)
	}
	return result, nil
}

// guardPull returns a context that is cancelled at the deadline of the pull. If the pull is slow, it calls release.
func (p *Puller) guardPull(ctx context.Context, request *pullRequest, release func()) (pullCtx context.Context, end func()) {
	pullCtx, cancel := context.WithCancelCause(ctx)
	onSlow := func() {
		release()
		p.opts.Logger.Warn("image pull is slow", "image", request.Image, "pod", request.Pod.Namespace+"/"+request.Pod.Name, "after", p.opts.SlowAfter)
		if p.opts.Hooks.Slow != nil {
			p.opts.Hooks.Slow(request.Request, p.opts.SlowAfter)
		}
	}
	var guard sync.WaitGroup
	guard.Go(func() { cancel(p.watchPull(pullCtx, onSlow)) })
	return pullCtx, func() {
		cancel(nil)
		guard.Wait()
	}
}

// tryCredentials pulls the image with one credential after another until a pull succeeds. If there are no credentials, it
// pulls anonymously.
func (p *Puller) tryCredentials(ctx context.Context, request *pullRequest, credentials []credential.Credential) (pullResult, error) {
	attempts := []*credential.Credential{nil}
	if len(credentials) > 0 {
		attempts = attempts[:0]
		for i := range credentials {
			attempts = append(attempts, &credentials[i])
		}
	}
	result := pullResult{leader: request}
	var errs []error
	for i, c := range attempts {
		ref, err := p.pullWithCredential(ctx, request, c, &result)
		if err == nil && ref == "" {
			err = errors.New("the runtime returned no image reference")
		}
		if err == nil {
			used := min(i, len(credentials)-1) // -1: no credentials
			return pullResult{leader: request, imageRef: ref, usedCredential: used, attempts: i + 1}, nil
		}
		if up, ok := errors.AsType[*timeoutError](context.Cause(ctx)); ok {
			err = up // instead of the runtime's error about cancellation
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return result, newPullError(request.Image, errs, credentials)
}

// pullWithCredential calls PullImage with the credential, or anonymously if it is nil.
func (p *Puller) pullWithCredential(ctx context.Context, request *pullRequest, used *credential.Credential, result *pullResult) (ref string, err error) {
	var auth *cri.Auth
	key := []string{"PullImage", request.spec.Image, request.spec.RuntimeHandler}
	if used != nil {
		auth = used.Auth()
		key = append(key, used.Hash())
	}
	return callOrAbandon(ctx, p, cancellableCall[string]{
		name:     "PullImage " + strconv.Quote(request.spec.Image),
		identity: strings.Join(key, "\n"),
		run: func(ctx context.Context) (string, error) {
			return p.runtime.PullImage(ctx, request.spec, auth, request.Sandbox)
		},
		onAbandoned:  func() { result.abandoned = true },
		onLateReturn: func(ref string, err error) { p.recordLatePull(context.WithoutCancel(ctx), request, used, ref, err) },
	})
}

// recordLatePull records the result of an abandoned pull after its call has returned.
func (p *Puller) recordLatePull(ctx context.Context, request *pullRequest, used *credential.Credential, imageRef string, err error) {
	if err != nil || imageRef == "" {
		if err := p.pullRecords.recordPullEnd(request.Image); err != nil {
			p.reportError(fmt.Errorf("record the end of the pull of image %q: %w", request.Image, err))
		}
		return
	}
	id := imageRef
	if image, err := p.imageStatus(ctx, cri.ImageSpec{Image: imageRef, RuntimeHandler: request.RuntimeHandler}); err == nil {
		id = image.ID
	}
	// Without a record the image would count as preloaded, so that any pod might use it.
	if err := p.pullRecords.recordPullSuccess(request.Image, request.reference.Short, id, newRecordedCredentials(used), time.Now()); err != nil {
		p.reportError(fmt.Errorf("record the pull of image %q: %w", request.Image, err))
	}
}

// recordFailure starts the back-off for a failed pull, and returns err with the time of the next attempt. secretErr names
// unusable pull secrets.
func (p *Puller) recordFailure(key backOffKey, err, secretErr error) *Error {
	e := Error{Reason: ReasonErrImagePull, Err: err}
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known // a copy, because other calls share the original
	}
	if secretErr != nil {
		text := strings.ReplaceAll(secretErr.Error(), "\n", "; ")
		e.Err = &maskedError{text: e.Err.Error() + " (not tried: " + text + ")", causes: []error{e.Err, secretErr}}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Retry = p.backOff.recordFailure(key, &e, time.Now())
	return &e
}

// activeFailure returns the last failed pull of the image for the pod in key. It returns active true while the next pull
// must still wait.
func (p *Puller) activeFailure(key backOffKey) (last failure, active bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backOff.activeFailure(key, time.Now())
}
