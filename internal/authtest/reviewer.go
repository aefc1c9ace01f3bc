// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package authtest has reviewers in memory, which stand for an API server, and an authority that makes client certificates.
//
// # What it does not model
//
// Rules have verbs and subresources of nodes alone: no names of nodes, no groups, no roles. Tokens do not expire, and have no audiences.
package authtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Reviewer knows tokens and rules. The zero value knows nobody. It may be used by many goroutines.
type Reviewer struct {
	mu         sync.Mutex // guards what follows
	tokens     map[string]authenticationv1.UserInfo
	rules      map[string][]string // by the name of a user: verb and subresource
	err        error
	hang       bool
	hangTokens bool // as hang, of tokens alone
	reviews    []string
	pace       time.Duration
	next       time.Time // when the next review begins, with a pace
}

// AddToken makes a token that of a user.
func (r *Reviewer) AddToken(token string, user authenticationv1.UserInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens == nil {
		r.tokens = make(map[string]authenticationv1.UserInfo)
	}
	r.tokens[token] = user
}

// RemoveToken makes a token that of nobody.
func (r *Reviewer) RemoveToken(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, token)
}

// Allow sets what a user may do, each as a verb and a subresource with a space between.
func (r *Reviewer) Allow(user string, rules ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules == nil {
		r.rules = make(map[string][]string)
	}
	r.rules[user] = rules
}

// SetError makes reviews fail from now on; nil ends that.
func (r *Reviewer) SetError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// SetHang makes reviews wait until their contexts end, as an API server does that does not answer.
func (r *Reviewer) SetHang(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

// SetHangTokens is Hang for reviews of tokens alone.
func (r *Reviewer) SetHangTokens(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangTokens = hang
}

// SetPace has reviews answered one after the other, each after a time, as those of a client with a budget of requests; zero ends that.
func (r *Reviewer) SetPace(each time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pace = each
}

// TakeReviews returns what was asked since the last call: tokens, and users with verbs and subresources.
func (r *Reviewer) TakeReviews() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.reviews
	r.reviews = nil
	return asked
}

// ask notes a question, and waits or fails as it is set.
func (r *Reviewer) beginReview(ctx context.Context, review string, token bool) error {
	r.mu.Lock()
	r.reviews = append(r.reviews, review)
	err, hang := r.err, r.hang || token && r.hangTokens
	var wait time.Duration
	if now := time.Now(); r.pace > 0 {
		if r.next.Before(now) {
			r.next = now
		}
		r.next = r.next.Add(r.pace)
		wait = r.next.Sub(now)
	}
	r.mu.Unlock()
	switch {
	case hang:
		<-ctx.Done()
		return ctx.Err()
	case wait > 0:
		return errors.Join(sleep.For(ctx, wait), err)
	}
	return err
}

// Tokens returns the reviewer of tokens.
func (r *Reviewer) Tokens() Tokens { return Tokens{r} }

// Access returns the reviewer of access.
func (r *Reviewer) Access() Access { return Access{r} }

// Tokens reviews tokens. Make one with [Reviewer.Tokens].
type Tokens struct{ r *Reviewer }

// Create says whose a token is.
func (t Tokens) Create(
	ctx context.Context, review *authenticationv1.TokenReview, _ metav1.CreateOptions,
) (*authenticationv1.TokenReview, error) {
	if err := t.r.beginReview(ctx, review.Spec.Token, true); err != nil {
		return nil, err
	}
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	out := review.DeepCopy()
	out.Status.User, out.Status.Authenticated = t.r.tokens[review.Spec.Token], false
	_, out.Status.Authenticated = t.r.tokens[review.Spec.Token]
	return out, nil
}

// Access reviews what users may do. Make one with [Reviewer.Access].
type Access struct{ r *Reviewer }

// Create reports whether a user may do something.
func (a Access) Create(
	ctx context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	rule := review.Spec.ResourceAttributes.Verb + " " + review.Spec.ResourceAttributes.Subresource
	if err := a.r.beginReview(ctx, review.Spec.User+" "+rule, false); err != nil {
		return nil, err
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	out := review.DeepCopy()
	out.Status.Allowed = slices.Contains(a.r.rules[review.Spec.User], rule)
	return out, nil
}
