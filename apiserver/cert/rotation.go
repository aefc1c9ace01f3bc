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
type common struct {
	name   string // for the log
	store  *certstore.Store
	now    func() time.Time // time.Now but in tests
	random func() float64
	log    *slog.Logger
	hooks  Hooks
}

// setUp fills in what is not set.
func (c *common) setUp(name string, log *slog.Logger, hooks Hooks, random func() float64) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if random == nil {
		random = rand.Float64
	}
	c.name, c.log, c.hooks, c.random, c.now = name, log, hooks, random, time.Now
}

// failed reports that a request has come to nothing.
func (c *common) failed(err error) {
	c.log.Error("no certificate", "certificate", c.name, "error", err)
	if c.hooks.Failed != nil {
		c.hooks.Failed(err)
	}
}

// rotation has a certificate, and replaces it in time.
type rotation struct {
	common common

	signer   string
	period   time.Duration // between two looks at template; at most maxSleep
	template func() (certrequest.Template, bool)
	// connect returns a client to make requests with, and a function that ends it.
	connect func() (*kubeapi.Client, func(), error)
	// reload looks for a certificate that somebody has put there. Force is one that is not the node's own.
	reload  func() (pair *tls.Certificate, force bool, err error)
	rotated func(now time.Time)           // before the hook; nil: nobody has to know
	sweep   func(now time.Time) time.Time // what is left of earlier certificates; nil: nothing
	guard   runonce.Guard

	mu     sync.Mutex // guards what follows
	pair   *tls.Certificate
	state  certrequest.State
	doing  string
	err    error
	looked time.Time // when reload was called last
	loaded string    // the error of that, which is logged once
}

// current returns the certificate, or nil if there is none that is valid.
func (r *rotation) current() *tls.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pair == nil || r.common.now().After(r.pair.Leaf.NotAfter) {
		return nil
	}
	return r.pair
}

// status returns what is known.
func (r *rotation) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Leaf: r.state.Leaf, Reason: r.doing, Failures: r.state.Failures, Err: r.err}
	if s.Leaf != nil {
		s.RotationDeadline = certrequest.RotationDeadline(s.Leaf.NotBefore, s.Leaf.NotAfter, r.state.Random)
	}
	return s
}

// use makes a certificate the current one.
func (r *rotation) use(pair *tls.Certificate, force bool) (old *x509.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.state.Leaf
	r.pair, r.state.Leaf, r.state.IsBootstrap, r.state.Random = pair, pair.Leaf, force, r.common.random()
	return old
}

// load uses a certificate that is there, if there is a valid one. That there is none is no error.
func (r *rotation) load() {
	r.looked = r.common.now()
	pair, force, err := r.reload()
	if err != nil && !errors.Is(err, certstore.ErrNoCertificate) {
		if text := err.Error(); text != r.loaded {
			r.loaded = text
			r.common.log.Error("certificate cannot be used", "certificate", r.common.name, "error", err)
		}
		return
	}
	r.loaded = ""
	if pair == nil {
		return
	}
	r.use(pair, force)
	r.common.log.Info("certificate loaded", "certificate", r.common.name, "commonName", pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
	if r.rotated != nil {
		r.rotated(r.common.now())
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
func (r *rotation) run(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return err
	}
	defer r.guard.End()
	var under *attempt
	var done chan struct{} // of under
	defer func() {
		if under != nil {
			under.cancel()
			<-under.done
		}
	}()
	for {
		action := r.step()
		wake := action.Wake
		switch action.Verb {
		case certrequest.Request:
			under = r.begin(ctx, action.Reason)
			done = under.done
			continue
		case certrequest.Cancel:
			under.cancel()
			<-under.done // its calls end with its context
			r.finish(under, action.Reason)
			under, done = nil, nil
			continue
		case certrequest.Wait:
		}
		if r.sweep != nil {
			wake = sleep.Earlier(r.sweep(r.common.now()), wake)
		}
		wait := min(max(wake.Sub(r.common.now()), 0), r.period) // the clock may have been set back since wake was chosen
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
			r.finish(under, "")
			under, done = nil, nil
		}
	}
}

// step looks at what may have changed, and decides.
func (r *rotation) step() certrequest.Action {
	template, known := r.template()
	now := r.common.now()
	if since := now.Sub(r.looked); r.current() == nil && r.idle() && (since >= certrequest.MaxSleep || since < 0) {
		r.load()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Template = nil
	if known {
		r.state.Template = &template
	}
	action := certrequest.Step(r.state, now)
	action.Wake = sleep.Earlier(action.Wake, now.Add(r.period))
	r.doing = action.Reason
	return action
}

// idle reports whether no request is under way.
func (r *rotation) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Pending == nil
}

// begin makes a request.
func (r *rotation) begin(ctx context.Context, why string) *attempt {
	r.mu.Lock()
	now, template := r.common.now(), *r.state.Template
	r.state.Pending, r.state.LastTemplate = &certrequest.Pending{Template: template, Since: now}, &template
	r.state.RequestTimes = certrequest.AppendRequestTime(r.state.RequestTimes, now)
	r.mu.Unlock()
	r.common.log.Info("certificate requested", "certificate", r.common.name, "why", why)
	ctx, cancel := context.WithTimeout(ctx, certrequest.Timeout+time.Minute) // Step ends it before
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		defer cancel()
		a.pair, a.err = r.request(ctx, template)
	}()
	return a
}

// request has a new key certified, and stores both.
func (r *rotation) request(ctx context.Context, template certrequest.Template) (*tls.Certificate, error) {
	if err := r.common.store.CheckWritable(); err != nil {
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
	client, end, err := r.connect()
	if err != nil {
		return nil, err
	}
	defer end()
	made, err := kubeapi.In(client, kubeapi.CertificateSigningRequests, "").Create(ctx, wanted)
	if err != nil {
		return nil, err
	}
	r.common.log.Info("certificate signing request made", "certificate", r.common.name, "request", made.Name)
	chain, err := await(ctx, client, made.Name, made.UID)
	if err != nil {
		return nil, err
	}
	return r.common.store.Update(chain, keyPEM)
}

// finish notes what has come of a request. Why is that it was given up, or empty.
func (r *rotation) finish(a *attempt, why string) {
	r.mu.Lock()
	now := r.common.now()
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
		r.common.log.Info("certificate signing request given up", "certificate", r.common.name, "why", why)
		return
	default:
		_, r.state.LastRefused = errors.AsType[*RefusedError](err)
		r.state.Failures++
		r.state.FailedAt, r.err = now, err
	}
	r.mu.Unlock()
	if err != nil {
		r.common.failed(err)
		return
	}
	old := r.use(a.pair, false)
	r.common.log.Info("certificate issued", "certificate", r.common.name, "commonName", a.pair.Leaf.Subject.CommonName, "notAfter", a.pair.Leaf.NotAfter)
	if r.rotated != nil {
		r.rotated(now)
	}
	if r.common.hooks.Rotated != nil {
		r.common.hooks.Rotated(old, a.pair.Leaf)
	}
}
