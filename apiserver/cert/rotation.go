// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Hooks are told what happens. Any func may be nil. They are called from Run, and must not block.
type Hooks struct {
	Rotated func(old, current *x509.Certificate) // a certificate was issued; old is nil if it is the first
	Failed  func(error)                          // a request has come to nothing, or no certificate can be requested
}

// Status is what is known about a certificate.
type Status struct {
	Leaf             *x509.Certificate // nil: there is none
	RotationDeadline time.Time         // when it is to be replaced; zero: there is none
	Reason           string            // what is waited for, in words
	Failures         int               // of requests, in a row
	Err              error             // of the last of these; nil: there were none
}

// common is what each way to a certificate needs.
type rotationBase struct {
	name   string // for the log
	store  *certstore.Store
	now    func() time.Time // time.Now but in tests
	random func() float64
	log    *slog.Logger
	hooks  Hooks
}

// setUp fills in what is not set.
func (c *rotationBase) setDefaults(name string, log *slog.Logger, hooks Hooks, random func() float64) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if random == nil {
		random = rand.Float64
	}
	c.name, c.log, c.hooks, c.random, c.now = name, log, hooks, random, time.Now
}

// failed reports that a request has come to nothing.
func (c *rotationBase) reportFailure(err error) {
	c.log.Error("no certificate", "certificate", c.name, "error", err)
	if c.hooks.Failed != nil {
		c.hooks.Failed(err)
	}
}

// rotation has a certificate, and replaces it in time.
type rotation struct {
	base rotationBase

	signer       string
	pollInterval time.Duration // between two looks at template; at most maxSleep
	template     func() (certrequest.Template, bool)
	// connect returns a client to make requests with, and a function that ends it.
	requestClient func() (*kubeapi.Client, func(), error)
	// reload looks for a certificate that somebody has put there. Force is one that is not the node's own.
	findCertificate func() (pair *tls.Certificate, force bool, err error)
	onRotated       func(now time.Time)           // before the hook; nil: nobody has to know
	closeExpired    func(now time.Time) time.Time // what is left of earlier certificates; nil: nothing
	guard           runonce.Guard

	mu          sync.Mutex // guards what follows
	pair        *tls.Certificate
	state       certrequest.State
	reason      string
	err         error
	reloadedAt  time.Time // when reload was called last
	reloadError string    // the error of that, which is logged once
}

// current returns the certificate, or nil if there is none that is valid.
func (r *rotation) currentPair() *tls.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pair == nil || r.base.now().After(r.pair.Leaf.NotAfter) {
		return nil
	}
	return r.pair
}

// status returns what is known.
func (r *rotation) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Leaf: r.state.Leaf, Reason: r.reason, Failures: r.state.Failures, Err: r.err}
	if s.Leaf != nil {
		s.RotationDeadline = certrequest.RotationDeadline(s.Leaf.NotBefore, s.Leaf.NotAfter, r.state.Random)
	}
	return s
}

// use makes a certificate the current one.
func (r *rotation) setCurrent(pair *tls.Certificate, force bool) (old *x509.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.state.Leaf
	r.pair, r.state.Leaf, r.state.IsBootstrap, r.state.Random = pair, pair.Leaf, force, r.base.random()
	return old
}

// load uses a certificate that is there, if there is a valid one. That there is none is no error.
func (r *rotation) loadExisting() {
	r.reloadedAt = r.base.now()
	pair, force, err := r.findCertificate()
	if err != nil && !errors.Is(err, certstore.ErrNoCertificate) {
		if text := err.Error(); text != r.reloadError {
			r.reloadError = text
			r.base.log.Error("certificate cannot be used", "certificate", r.base.name, "error", err)
		}
		return
	}
	r.reloadError = ""
	if pair == nil {
		return
	}
	r.setCurrent(pair, force)
	r.base.log.Info("certificate loaded", "certificate", r.base.name, "commonName", pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
	if r.onRotated != nil {
		r.onRotated(r.base.now())
	}
}

// attempt is a request that is under way.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
	pair   *tls.Certificate // once it is done
	err    error
}

// run decides and does, until ctx ends.
func (r *rotation) runLoop(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return err
	}
	defer r.guard.End()
	var running *attempt
	var done chan struct{} // of under
	defer func() {
		if running != nil {
			running.cancel()
			<-running.done
		}
	}()
	for {
		action := r.nextAction()
		wake := action.Wake
		switch action.Verb {
		case certrequest.Request:
			running = r.startAttempt(ctx, action.Reason)
			done = running.done
			continue
		case certrequest.Cancel:
			running.cancel()
			<-running.done // its calls end with its context
			r.finishAttempt(running, action.Reason)
			running, done = nil, nil
			continue
		case certrequest.Wait:
		}
		if r.closeExpired != nil {
			wake = sleep.Earlier(r.closeExpired(r.base.now()), wake)
		}
		wait := min(max(wake.Sub(r.base.now()), 0), r.pollInterval) // the clock may have been set back since wake was chosen
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-done:
			timer.Stop()
			if ctx.Err() != nil {
				return nil
			}
			r.finishAttempt(running, "")
			running, done = nil, nil
		}
	}
}

// step looks at what may have changed, and decides.
func (r *rotation) nextAction() certrequest.Action {
	template, known := r.template()
	now := r.base.now()
	if since := now.Sub(r.reloadedAt); r.currentPair() == nil && r.isIdle() && (since >= certrequest.MaxSleep || since < 0) {
		r.loadExisting()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Template = nil
	if known {
		r.state.Template = &template
	}
	action := certrequest.Step(r.state, now)
	action.Wake = sleep.Earlier(action.Wake, now.Add(r.pollInterval))
	r.reason = action.Reason
	return action
}

// idle reports whether no request is under way.
func (r *rotation) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Pending == nil
}

// begin makes a request.
func (r *rotation) startAttempt(ctx context.Context, why string) *attempt {
	r.mu.Lock()
	now, template := r.base.now(), *r.state.Template
	r.state.Pending, r.state.LastTemplate = &certrequest.Pending{Template: template, Since: now}, &template
	r.state.RequestTimes = certrequest.AppendRequestTime(r.state.RequestTimes, now)
	r.mu.Unlock()
	r.base.log.Info("certificate requested", "certificate", r.base.name, "why", why)
	ctx, cancel := context.WithTimeout(ctx, certrequest.Timeout+time.Minute) // Step ends it before
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		defer cancel()
		a.pair, a.err = r.requestCertificate(ctx, template)
	}()
	return a
}

// request has a new key certified, and stores both.
func (r *rotation) requestCertificate(ctx context.Context, template certrequest.Template) (*tls.Certificate, error) {
	if err := r.base.store.CheckWritable(); err != nil {
		return nil, err
	}
	key, keyPEM, err := certstore.NewKey()
	if err != nil {
		return nil, err
	}
	wanted, err := certrequest.NewRequest(template, r.signer, key)
	if err != nil {
		return nil, err
	}
	client, end, err := r.requestClient()
	if err != nil {
		return nil, err
	}
	defer end()
	created, err := kubeapi.In(client, kubeapi.CertificateSigningRequests, "").Create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	r.base.log.Info("certificate signing request made", "certificate", r.base.name, "request", created.Name)
	chain, err := awaitCertificate(ctx, client, created.Name, created.UID)
	if err != nil {
		return nil, err
	}
	return r.base.store.Update(chain, keyPEM)
}

// finish notes what has come of a request. Why is that it was given up, or empty.
func (r *rotation) finishAttempt(a *attempt, why string) {
	r.mu.Lock()
	now := r.base.now()
	outdated := r.state.Template != nil && !r.state.Template.Equal(r.state.Pending.Template)
	r.state.Pending = nil
	err := a.err
	if why != "" && err != nil {
		err = errors.New("certificate signing request given up: " + why)
	}
	switch {
	case err == nil:
		r.state.Failures, r.state.LastRefused, r.err = 0, false, nil
	case why != "" && outdated:
		r.mu.Unlock()
		r.base.log.Info("certificate signing request given up", "certificate", r.base.name, "why", why)
		return
	default:
		_, r.state.LastRefused = errors.AsType[*RefusedError](err)
		r.state.Failures++
		r.state.FailedAt, r.err = now, err
	}
	r.mu.Unlock()
	if err != nil {
		r.base.reportFailure(err)
		return
	}
	old := r.setCurrent(a.pair, false)
	r.base.log.Info("certificate issued", "certificate", r.base.name, "commonName", a.pair.Leaf.Subject.CommonName, "notAfter", a.pair.Leaf.NotAfter)
	if r.onRotated != nil {
		r.onRotated(now)
	}
	if r.base.hooks.Rotated != nil {
		r.base.hooks.Rotated(old, a.pair.Leaf)
	}
}
