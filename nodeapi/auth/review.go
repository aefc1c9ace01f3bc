// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/nodeattributes"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// TokenReviewer asks the API server whose a token is. AuthenticationV1().TokenReviews() of client-go is one. It has to return when its
// context ends.
type TokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// AccessReviewer asks the API server what a user may do. AuthorizationV1().SubjectAccessReviews() of client-go is one. It has to return
// when its context ends.
type AccessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// The waits between tries of a review, and how many tries there are: DefaultAuthWebhookRetryBackoff of k8s.io/apiserver.
const (
	firstRetry  = 500 * time.Millisecond
	retryFactor = 1.5
	retryJitter = 0.2
	tries       = 5
)

// reviews asks both kinds of questions, and remembers the answers.
type reviews struct {
	o    *Options
	salt []byte // of the keys, so that nobody can make two tokens meet
	// What tokens cost is bounded for each client address, and apart from what users cost who are known.
	waiting, waitingUsers room
	slots, userSlots      slots

	tokens, refusedTokens *cache[identity]
	allowed, denied       *cache[authorizationv1.SubjectAccessReviewStatus]
	asking                flights[identity]
	deciding              flights[authorizationv1.SubjectAccessReviewStatus]
}

// identity is whose a token is.
type identity struct {
	user  User
	known bool
}

func newReviews(o *Options) *reviews {
	r := &reviews{
		o: o, salt: make([]byte, 32),
		waiting: newRoom(o.MaxReviews), waitingUsers: newRoom(o.MaxReviews),
		slots: newSlots(o.MaxReviews), userSlots: newSlots(o.MaxReviews),
		tokens: newCache[identity](o.CacheSize), refusedTokens: newCache[identity](o.CacheSize),
		allowed: newCache[authorizationv1.SubjectAccessReviewStatus](o.CacheSize),
		denied:  newCache[authorizationv1.SubjectAccessReviewStatus](o.CacheSize),
	}
	_, _ = rand.Read(r.salt) // which never fails
	return r
}

// token returns whose a token is that a client has sent. Answers are remembered, errors are not.
func (r *reviews) token(ctx context.Context, client, token string) (identity, error) {
	k := r.digest([]byte(token))
	now := time.Now()
	if who, found := r.tokens.get(k, now); found {
		return who, nil
	}
	if who, found := r.refusedTokens.get(k, now); found {
		return who, nil
	}
	if !r.waiting.enter(client) {
		return identity{}, fmt.Errorf("review a bearer token: %w", errBusy)
	}
	defer r.waiting.leave(client)
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	return r.asking.do(ctx, k, func(ctx context.Context) (identity, error) {
		if err := r.slots.acquire(ctx, client); err != nil {
			return identity{}, fmt.Errorf("review a bearer token: %w", err)
		}
		defer r.slots.release(client)
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err := try(ctx, r, TokenReview, func() (*authenticationv1.TokenReview, error) {
			return r.o.TokenReviewer.Create(ctx, review, metav1.CreateOptions{})
		})
		if err != nil {
			return identity{}, fmt.Errorf("review a bearer token: %w", err)
		}
		status := answer.Status
		switch {
		case status.Authenticated:
			who := identity{user: reviewed(status.User), known: true}
			r.tokens.put(k, who, time.Now().Add(r.o.TokenTTL))
			return who, nil
		case status.Error != "":
			return identity{}, fmt.Errorf("review a bearer token: %.200q", status.Error)
		}
		r.refusedTokens.put(k, identity{}, time.Now().Add(r.o.TokenTTL))
		return identity{}, nil
	})
}

// access reports whether a user may do something on the node.
func (r *reviews) access(ctx context.Context, u User, a nodeattributes.Attribute) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra(u.Extra),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Version: "v1", Resource: "nodes", Subresource: a.Subresource, Name: r.o.NodeName,
		},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encode an access review: %w", err)
	}
	k := r.digest(text)
	now := time.Now()
	status, found := r.allowed.get(k, now)
	if !found {
		status, found = r.denied.get(k, now)
	}
	if !found {
		if status, err = r.decide(ctx, k, spec); err != nil {
			return false, err
		}
	}
	if status.Allowed && status.Denied {
		return false, errors.New("the API server both allows and denies it")
	}
	return status.Allowed, nil
}

func (r *reviews) decide(
	ctx context.Context, k key, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	if !r.waitingUsers.enter(spec.User) {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, errBusy)
	}
	defer r.waitingUsers.leave(spec.User)
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	return r.deciding.do(ctx, k, func(ctx context.Context) (authorizationv1.SubjectAccessReviewStatus, error) {
		if err := r.userSlots.acquire(ctx, spec.User); err != nil {
			return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, err)
		}
		defer r.userSlots.release(spec.User)
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		answer, err := try(ctx, r, AccessReview, func() (*authorizationv1.SubjectAccessReview, error) {
			return r.o.AccessReviewer.Create(ctx, review, metav1.CreateOptions{})
		})
		if err != nil {
			return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, err)
		}
		if answer.Status.Allowed {
			r.allowed.put(k, answer.Status, time.Now().Add(r.o.AllowTTL))
		} else {
			r.denied.put(k, answer.Status, time.Now().Add(r.o.DenyTTL))
		}
		return answer.Status, nil
	})
}

// newRoom returns the room for requests that wait, with as many reviews at a time as most.
func newRoom(most int) room { return room{most: 8 * most, each: 2 * most, reserved: 2} }

// newSlots returns most slots, a quarter of them for each client.
func newSlots(most int) slots { return slots{most: most, each: max(1, most/4)} }

// try sends a review, again where it may help, within the time of ctx.
func try[T any](ctx context.Context, r *reviews, what Review, send func() (*T, error)) (*T, error) {
	if err := ctx.Err(); err != nil { // both were so
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // and it has not been told yet
		return nil, context.DeadlineExceeded
	}
	wait := firstRetry
	for i := 1; ; i++ {
		start := time.Now()
		answer, err := send()
		if call := r.o.Hooks.ReviewCompleted; call != nil {
			call(what, time.Since(start), err)
		}
		if err == nil && answer == nil {
			return nil, errors.New("the reviewer returned neither an answer nor an error")
		}
		if err == nil || i == tries || !worthRetrying(err) {
			return answer, err
		}
		if ended := sleep.For(ctx, backoff.Jitter(wait, 1, 1+retryJitter, r.o.Rand())); ended != nil {
			return nil, errors.Join(err, ended)
		}
		wait = time.Duration(float64(wait) * retryFactor)
	}
}

// worthRetrying reports whether an error may be another one at the next try. Source: DefaultShouldRetry in
// k8s.io/apiserver/pkg/util/webhook.
func worthRetrying(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

func (r *reviews) digest(data []byte) (k key) {
	h := hmac.New(sha256.New, r.salt)
	h.Write(data)
	h.Sum(k[:0])
	return k
}

func extra(all map[string][]string) map[string]authorizationv1.ExtraValue {
	if all == nil {
		return nil
	}
	out := make(map[string]authorizationv1.ExtraValue, len(all))
	for name, values := range all {
		out[name] = values
	}
	return out
}
