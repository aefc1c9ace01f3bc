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

// outcome is what a pull came to. Calls that want the same share it.
type outcome struct {
	ref      string // what the runtime called the image; empty when it was not pulled
	image    cri.Image
	used     int // which of the credentials opened it; -1: none was needed
	attempts int
	took     time.Duration
	leader   *want // whose call made the pull
	// abandoned: the runtime has not returned from the pull of the leader, and may still bring the image.
	abandoned bool
}

// pull pulls an image, unless it is too early for that.
func (p *Puller) pull(ctx context.Context, w *want) (cri.Image, error) {
	key := backOffKey{podUID: w.Pod.UID, image: w.Image}
	if f, ok := p.waiting(key); ok {
		return cri.Image{}, &Error{
			Reason: ReasonImagePullBackOff, Retry: f.until(),
			Err: saying(f.err, "Back-off pulling image ", w.Image, ": "+f.err.Error()),
		}
	}
	if p.opts.Hooks.Pulling != nil {
		p.opts.Hooks.Pulling(w.Request)
	}
	began := time.Now()
	credentials, unread := w.credentials()
	out, err := p.share(ctx, w, credentials)
	if ctx.Err() == context.Canceled && err != nil {
		return cri.Image{}, ctx.Err()
	}
	if err != nil {
		return cri.Image{}, p.failed(key, err, unread)
	}
	p.opts.Logger.Debug("image pulled", "image", w.Image, "pod", w.Pod.Namespace+"/"+w.Pod.Name, "took", out.took)
	if p.opts.Hooks.Pulled != nil {
		p.opts.Hooks.Pulled(w.Request, Pull{
			Image: out.image, Took: out.took, Total: time.Since(began), Shared: out.leader != w, Attempts: out.attempts,
		})
	}
	return out.image, nil
}

// share pulls an image together with the calls that want the same, and keeps the records.
func (p *Puller) share(ctx context.Context, w *want, credentials []credential.Credential) (outcome, error) {
	if err := p.records.begin(w.Image); err != nil {
		return outcome{}, fmt.Errorf("record the pull of image %q: %w", w.Image, err)
	}
	out, err := p.flights.Do(ctx, flightKey(w, credentials), func(ctx context.Context) (outcome, error) {
		return p.fetch(ctx, w, credentials)
	})
	if out.abandoned && out.leader == w {
		return out, err // the record that the pull has begun stays until it returns
	}
	if out.ref == "" {
		if err := p.records.end(w.Image); err != nil {
			p.report(fmt.Errorf("record the end of the pull of image %q: %w", w.Image, err))
		}
		return out, err
	}
	var used *credential.Credential
	if out.used >= 0 {
		used = &credentials[out.used]
	}
	id := out.image.ID
	if id == "" {
		id = out.ref
	}
	if err := p.records.succeed(w.Image, w.ref.Short, id, record(used), time.Now()); err != nil {
		p.report(fmt.Errorf("record the pull of image %q: %w", w.Image, err))
	}
	return out, err
}

// flightKey tells apart pulls that may come to something different.
func flightKey(w *want, credentials []credential.Credential) string {
	key := []string{w.spec.Image, w.spec.RuntimeHandler}
	for _, c := range credentials {
		key = append(key, c.Hash())
	}
	return strings.Join(key, "\n")
}

// fetch has the runtime pull an image, when it is its turn.
func (p *Puller) fetch(ctx context.Context, w *want, credentials []credential.Credential) (outcome, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-p.slots })
	defer release()
	if err := p.awaitToken(ctx); err != nil {
		return outcome{}, err
	}
	began := time.Now()
	pulling, end := p.guarded(ctx, w, release)
	out, err := p.try(pulling, w, credentials)
	end()
	out.took = time.Since(began)
	if err != nil {
		return out, err
	}
	out.image, err = p.inspect(ctx, cri.ImageSpec{Image: out.ref, RuntimeHandler: w.RuntimeHandler})
	if err != nil {
		return out, inspectError(w.Image, err)
	}
	return out, nil
}

// guarded returns a context for a pull. It ends when the pull is to be ended, with the reason as its cause. A slow pull
// releases its slot.
func (p *Puller) guarded(ctx context.Context, w *want, release func()) (pulling context.Context, end func()) {
	pulling, cancel := context.WithCancelCause(ctx)
	slow := func() {
		release()
		p.opts.Logger.Warn("image pull is slow", "image", w.Image, "pod", w.Pod.Namespace+"/"+w.Pod.Name, "after", p.opts.SlowAfter)
		if p.opts.Hooks.Slow != nil {
			p.opts.Hooks.Slow(w.Request, p.opts.SlowAfter)
		}
	}
	var guard sync.WaitGroup
	guard.Go(func() { cancel(p.guard(pulling, slow)) })
	return pulling, func() {
		cancel(nil)
		guard.Wait()
	}
}

// try pulls with one credential after the other, or with none when there are none.
func (p *Puller) try(ctx context.Context, w *want, credentials []credential.Credential) (outcome, error) {
	shown := []*credential.Credential{nil}
	if len(credentials) > 0 {
		shown = shown[:0]
		for i := range credentials {
			shown = append(shown, &credentials[i])
		}
	}
	out := outcome{leader: w}
	var errs []error
	for i, c := range shown {
		ref, err := p.pullAs(ctx, w, c, &out)
		if err == nil && ref == "" {
			err = errors.New("the runtime does not say what it has pulled")
		}
		if err == nil {
			used := min(i, len(credentials)-1) // -1 where there are none
			return outcome{leader: w, ref: ref, used: used, attempts: i + 1}, nil
		}
		if up, ok := errors.AsType[*timeUp](context.Cause(ctx)); ok {
			err = up // and not that the runtime was interrupted
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return out, pullError(w.Image, errs, credentials)
}

// pullAs has the runtime pull an image with a credential, or with none. When the call is abandoned, the record that the
// pull has begun stays until it returns.
func (p *Puller) pullAs(ctx context.Context, w *want, c *credential.Credential, out *outcome) (ref string, err error) {
	var auth *cri.Auth
	key := []string{"PullImage", w.spec.Image, w.spec.RuntimeHandler}
	if c != nil {
		auth = c.Auth()
		key = append(key, c.Hash())
	}
	return call(ctx, p, callee[string]{
		name: "PullImage " + strconv.Quote(w.spec.Image),
		key:  strings.Join(key, "\n"),
		make: func(ctx context.Context) (string, error) { return p.runtime.PullImage(ctx, w.spec, auth, w.Sandbox) },
		left: func() { out.abandoned = true },
		late: func(ref string, err error) { p.late(context.WithoutCancel(ctx), w, c, ref, err) },
	})
}

// late keeps the records of a pull that has returned after it was abandoned: what it has brought is not for every pod.
func (p *Puller) late(ctx context.Context, w *want, c *credential.Credential, ref string, err error) {
	if err != nil || ref == "" {
		if err := p.records.end(w.Image); err != nil {
			p.report(fmt.Errorf("record the end of the pull of image %q: %w", w.Image, err))
		}
		return
	}
	id := ref
	if image, err := p.inspect(ctx, cri.ImageSpec{Image: ref, RuntimeHandler: w.RuntimeHandler}); err == nil {
		id = image.ID
	}
	if err := p.records.succeed(w.Image, w.ref.Short, id, record(c), time.Now()); err != nil {
		p.report(fmt.Errorf("record the pull of image %q: %w", w.Image, err))
	}
}

// failed turns what went wrong into the error for one pod, and holds it against the image.
func (p *Puller) failed(key backOffKey, err, unread error) *Error {
	e := Error{Reason: ReasonErrImagePull, Err: err}
	if known, ok := errors.AsType[*Error](err); ok {
		e = *known // a copy: others share the original
	}
	if unread != nil {
		text := strings.ReplaceAll(unread.Error(), "\n", "; ")
		e.Err = &message{text: e.Err.Error() + " (not tried: " + text + ")", causes: []error{e.Err, unread}}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Retry = p.backOff.fail(key, &e, time.Now())
	return &e
}

func (p *Puller) waiting(key backOffKey) (failure, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.backOff.waiting(key, time.Now())
}
