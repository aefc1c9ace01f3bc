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

// Hooks reports issued certificates and failed requests. Any hook may be nil. Hooks are called from Run and must not block.
type Hooks struct {
	Rotated func(old, current *x509.Certificate) // a certificate was issued and stored; old is nil if there was none
	Failed  func(error)                          // a certificate could not be requested, issued or stored
}

// Status is the state of a certificate and its requests.
type Status struct {
	Leaf             *x509.Certificate // nil: no certificate
	RotationDeadline time.Time         // when it will be replaced; zero: no certificate
	Reason           string            // why a certificate is requested now, or why Run waits; a text for people
	Failures         int               // failed requests in a row
	Err              error             // error of the last failed request; nil: none
}

// rotationBase holds the store, clock, logger and hooks that [Bootstrap] and rotations share.
type rotationBase struct {
	name   string // "client" or "serving", for the log
	store  *certstore.Store
	now    func() time.Time // time.Now, except in tests
	random func() float64
	log    *slog.Logger
	hooks  Hooks
}

// setDefaults sets all fields of c except the certificate store. name is "client" or "serving". If log is nil, messages are
// discarded. If random is nil, [rand.Float64] is used.
func (c *rotationBase) setDefaults(name string, log *slog.Logger, hooks Hooks, random func() float64) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if random == nil {
		random = rand.Float64
	}
	c.name, c.log, c.hooks, c.random, c.now = name, log, hooks, random, time.Now
}

// reportFailure logs that a certificate request has failed, and calls Hooks.Failed.
func (c *rotationBase) reportFailure(err error) {
	c.log.Error("request certificate", "certificate", c.name, "error", err)
	if c.hooks.Failed != nil {
		c.hooks.Failed(err)
	}
}

// rotation requests, stores and replaces one certificate. [Client] and [Serving] configure it by its fields.
type rotation struct {
	base rotationBase

	signer       string
	pollInterval time.Duration                       // longest time between two calls of template; at most certrequest.MaxSleep
	template     func() (certrequest.Template, bool) // names for the certificate; false: the names are not known yet
	// requestClient returns a client for certificate requests, and a function that closes it.
	requestClient func() (*kubeapi.Client, func(), error)
	// findCertificate loads the certificate on disk. replace is true if it was not issued for the node: it must be replaced at
	// once.
	findCertificate func() (pair *tls.Certificate, replace bool, err error)
	onRotated       func(now time.Time)           // called after a new current certificate, before the hook Rotated; nil: not called
	closeExpired    func(now time.Time) time.Time // closes connections of replaced certificates, returns the next call; nil: not called
	guard           runonce.Guard

	mu          sync.Mutex // guards the fields below
	pair        *tls.Certificate
	state       certrequest.State
	reason      string
	err         error
	reloadedAt  time.Time // last call of findCertificate
	reloadError string    // last error of findCertificate, which was logged
}

// currentPair returns the current certificate with its key, or nil if there is no valid certificate.
func (r *rotation) currentPair() *tls.Certificate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pair == nil || r.base.now().After(r.pair.Leaf.NotAfter) {
		return nil
	}
	return r.pair
}

// status returns the state of the certificate and its requests.
func (r *rotation) status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Leaf: r.state.Leaf, Reason: r.reason, Failures: r.state.Failures, Err: r.err}
	if s.Leaf != nil {
		s.RotationDeadline = certrequest.RotationDeadline(s.Leaf.NotBefore, s.Leaf.NotAfter, r.state.Random)
	}
	return s
}

// setCurrent makes pair the current certificate and returns the previous one, or nil if there was none. replaceAtOnce marks
// pair as a bootstrap certificate.
func (r *rotation) setCurrent(pair *tls.Certificate, replaceAtOnce bool) (old *x509.Certificate) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.state.Leaf
	r.pair, r.state.Leaf, r.state.IsBootstrap, r.state.Random = pair, pair.Leaf, replaceAtOnce, r.base.random()
	return old
}

// loadExisting makes the certificate on disk the current certificate, if there is a certificate. It logs errors.
func (r *rotation) loadExisting() {
	r.reloadedAt = r.base.now()
	pair, replace, err := r.findCertificate()
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
	r.setCurrent(pair, replace)
	r.base.log.Info("certificate loaded", "certificate", r.base.name, "commonName", pair.Leaf.Subject.CommonName, "notAfter", pair.Leaf.NotAfter)
	if r.onRotated != nil {
		r.onRotated(r.base.now())
	}
}

// attempt is a certificate request in flight.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
	pair   *tls.Certificate // set before done is closed
	err    error
}

// runLoop starts, cancels and completes certificate requests until ctx ends. In each step it executes the action that
// nextAction returns.
func (r *rotation) runLoop(ctx context.Context) error {
	if err := r.guard.Begin(); err != nil {
		return err
	}
	defer r.guard.End()
	var running *attempt
	var done chan struct{} // done of the running attempt
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
			<-running.done // its requests end with its context
			r.finishAttempt(running, action.Reason)
			running, done = nil, nil
			continue
		case certrequest.Wait:
		}
		if r.closeExpired != nil {
			wake = sleep.Earlier(r.closeExpired(r.base.now()), wake)
		}
		wait := min(max(wake.Sub(r.base.now()), 0), r.pollInterval) // the clock may have been set back
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

// nextAction decides whether to request a certificate, to cancel the pending request or to wait.
func (r *rotation) nextAction() certrequest.Action {
	template, known := r.template()
	now := r.base.now()
	// without a valid certificate, the files are read again, because an administrator may have repaired them
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

// isIdle reports whether no request is in flight.
func (r *rotation) isIdle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Pending == nil
}

// startAttempt starts a goroutine that requests a certificate, and logs the reason. When attempt.done is closed, the caller
// must call finishAttempt.
func (r *rotation) startAttempt(ctx context.Context, reason string) *attempt {
	r.mu.Lock()
	now, template := r.base.now(), *r.state.Template
	r.state.Pending, r.state.LastTemplate = &certrequest.Pending{Template: template, Since: now}, &template
	r.state.RequestTimes = certrequest.AppendRequestTime(r.state.RequestTimes, now)
	r.mu.Unlock()
	r.base.log.Info("certificate requested", "certificate", r.base.name, "why", reason)
	ctx, cancel := context.WithTimeout(ctx, certrequest.Timeout+time.Minute) // certrequest.Step cancels it earlier
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		defer cancel()
		a.pair, a.err = r.requestCertificate(ctx, template)
	}()
	return a
}

// requestCertificate creates a key, requests a certificate for it with the names in the template, and stores both.
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
	r.base.log.Info("certificate signing request created", "certificate", r.base.name, "request", created.Name)
	chain, err := awaitCertificate(ctx, client, created.Name, created.UID)
	if err != nil {
		return nil, err
	}
	return r.base.store.Update(chain, keyPEM)
}

// finishAttempt makes the issued certificate the current one, or records and reports that the request has failed.
func (r *rotation) finishAttempt(finished *attempt, cancelReason string) {
	r.mu.Lock()
	now := r.base.now()
	outdated := r.state.Template != nil && !r.state.Template.Equal(r.state.Pending.Template)
	r.state.Pending = nil
	err := finished.err
	if cancelReason != "" && err != nil {
		err = errors.New("certificate signing request canceled: " + cancelReason)
	}
	switch {
	case err == nil:
		r.state.Failures, r.state.LastRefused, r.err = 0, false, nil
	case cancelReason != "" && outdated:
		r.mu.Unlock()
		r.base.log.Info("certificate signing request canceled", "certificate", r.base.name, "why", cancelReason)
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
	old := r.setCurrent(finished.pair, false)
	r.base.log.Info("certificate issued", "certificate", r.base.name, "commonName", finished.pair.Leaf.Subject.CommonName, "notAfter", finished.pair.Leaf.NotAfter)
	if r.onRotated != nil {
		r.onRotated(now)
	}
	if r.base.hooks.Rotated != nil {
		r.base.hooks.Rotated(old, finished.pair.Leaf)
	}
}
