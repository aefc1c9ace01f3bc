// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package authtest has an in-memory replacement for the TokenReview and SubjectAccessReview APIs of an API server, and an
// authority for client certificates.
//
// # What it does not model
//
// Rules consist of verbs and node subresources only: no node names, groups or roles. Tokens do not expire and have no audiences.
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

// Reviewer answers token and access reviews from its tokens and rules. The zero value has none: it authenticates and permits no
// user. It is safe for concurrent use.
type Reviewer struct {
	mu         sync.Mutex // guards the fields below
	tokens     map[string]authenticationv1.UserInfo
	rules      map[string][]string // "VERB SUBRESOURCE" by user name
	err        error               // returned by all reviews; nil: none
	hang       bool                // reviews block until their context ends
	hangTokens bool                // token reviews block until their context ends
	reviews    []string            // since the last call of TakeReviews
	pace       time.Duration       // time between two reviews; zero: no limit
	next       time.Time           // when the next review may start
}

// AddToken makes token authenticate user.
func (r *Reviewer) AddToken(token string, user authenticationv1.UserInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens == nil {
		r.tokens = make(map[string]authenticationv1.UserInfo)
	}
	r.tokens[token] = user
}

// RemoveToken makes a token invalid.
func (r *Reviewer) RemoveToken(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tokens, token)
}

// Allow replaces the rules of a user. Each rule permits a verb on a subresource of nodes, such as "get metrics".
func (r *Reviewer) Allow(user string, rules ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rules == nil {
		r.rules = make(map[string][]string)
	}
	r.rules[user] = rules
}

// SetError makes all later reviews return err. If err is nil, reviews succeed again.
func (r *Reviewer) SetError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// SetHang sets whether reviews block until their contexts end, like requests to an API server that does not respond.
func (r *Reviewer) SetHang(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hang = hang
}

// SetHangTokens sets whether token reviews block until their contexts end. It does not affect access reviews.
func (r *Reviewer) SetHangTokens(hang bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hangTokens = hang
}

// SetPace limits the rate of reviews, like a client with a rate limit: two reviews complete at least interval apart. Zero
// removes the limit.
func (r *Reviewer) SetPace(interval time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pace = interval
}

// TakeReviews returns the reviews since its last call, in order. A token review is returned as its token, and an access
// review as "USER VERB SUBRESOURCE".
func (r *Reviewer) TakeReviews() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := r.reviews
	r.reviews = nil
	return asked
}

// beginReview records a review, and then waits, blocks or fails as SetPace, SetHang, SetHangTokens and SetError have
// configured. token is true for a token review.
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

// Tokens returns a client for TokenReviews, for package nodeapi/auth. The reviewer answers its requests.
func (r *Reviewer) Tokens() Tokens { return Tokens{r} }

// Access returns a client for SubjectAccessReviews, for package nodeapi/auth. The reviewer answers its requests.
func (r *Reviewer) Access() Access { return Access{r} }

// Tokens implements the TokenReview API. Create one with [Reviewer.Tokens].
type Tokens struct{ r *Reviewer }

// Create returns a copy of review with the user of its token.
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

// Access implements the SubjectAccessReview API. Create one with [Reviewer.Access].
type Access struct{ r *Reviewer }

// Create returns a copy of review with the decision of the reviewer. The action is permitted if one of the user's rules has
// its verb and subresource.
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
