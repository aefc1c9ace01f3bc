// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
	began := time.Now()
	if !p.admit(began) {
		return outcome{}, errors.New("pull QPS exceeded")
	}
	out, err := p.try(ctx, w, credentials)
	out.took = time.Since(began)
	if err != nil {
		return out, err
	}
	out.image, err = p.images.ImageStatus(ctx, cri.ImageSpec{Image: out.ref, RuntimeHandler: w.RuntimeHandler})
	if err != nil {
		return out, inspectError(w.Image, err)
	}
	return out, nil
}

// try pulls with one credential after the other, or with none when there are none.
func (p *Puller) try(ctx context.Context, w *want, credentials []credential.Credential) (outcome, error) {
	auths := []*cri.Auth{nil}
	if len(credentials) > 0 {
		auths = auths[:0]
		for _, c := range credentials {
			auths = append(auths, c.Auth())
		}
	}
	var errs []error
	for i, auth := range auths {
		ref, err := p.runtime.PullImage(ctx, w.spec, auth, w.Sandbox)
		if err == nil && ref == "" {
			err = errors.New("the runtime does not say what it has pulled")
		}
		if err == nil {
			used := min(i, len(credentials)-1) // -1 where there are none
			return outcome{leader: w, ref: ref, used: used, attempts: i + 1}, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return outcome{}, pullError(w.Image, errs, credentials)
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

func (p *Puller) admit(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit.take(now)
}
