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

// TokenReviewer creates a TokenReview at the API server. It is the interface that AuthenticationV1().TokenReviews() of client-go
// implements. Create must return when ctx ends.
type TokenReviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// AccessReviewer creates a SubjectAccessReview at the API server. It is the interface that
// AuthorizationV1().SubjectAccessReviews() of client-go implements. Create must return when ctx ends.
type AccessReviewer interface {
	Create(ctx context.Context, review *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Retries of a failed review. The values are those of DefaultAuthWebhookRetryBackoff in k8s.io/apiserver.
const (
	firstRetry  = 500 * time.Millisecond
	retryFactor = 1.5
	retryJitter = 0.2
	maxAttempts = 5
)

// reviewer sends token and access reviews to the API server, and caches the results.
type reviewer struct {
	o    *Options
	salt []byte // random key of the digests, so that clients cannot find colliding tokens
	// Limits per client address for token reviews, and per user for access reviews: unauthenticated clients do not delay
	// authenticated users.
	waiting, waitingUsers waitLimit
	slots, userSlots      slots

	tokens, refusedTokens *cache[identity]
	allowed, denied       *cache[authorizationv1.SubjectAccessReviewStatus]
	tokenCalls            sharedCalls[identity]
	accessCalls           sharedCalls[authorizationv1.SubjectAccessReviewStatus]
}

// identity is the result of a token review.
type identity struct {
	user          User
	authenticated bool
}

func newReviewer(opts *Options) *reviewer {
	r := &reviewer{
		o: opts, salt: make([]byte, 32),
		waiting: newWaitLimit(opts.MaxReviews), waitingUsers: newWaitLimit(opts.MaxReviews),
		slots: newSlots(opts.MaxReviews), userSlots: newSlots(opts.MaxReviews),
		tokens: newCache[identity](opts.CacheSize), refusedTokens: newCache[identity](opts.CacheSize),
		allowed: newCache[authorizationv1.SubjectAccessReviewStatus](opts.CacheSize),
		denied:  newCache[authorizationv1.SubjectAccessReviewStatus](opts.CacheSize),
	}
	_, _ = rand.Read(r.salt) // which never fails
	return r                 // never fails
}

// reviewToken returns the identity of a bearer token from the cache, or from a TokenReview of the API server. Errors are not
// cached.
func (r *reviewer) reviewToken(ctx context.Context, client, token string) (identity, error) {
	k := r.cacheKey([]byte(token))
	now := time.Now()
	if cached, found := r.tokens.getValue(k, now); found {
		return cached, nil
	}
	if cached, found := r.refusedTokens.getValue(k, now); found {
		return cached, nil
	}
	if !r.waiting.startWait(client) { // limits the reviews per client
		return identity{}, fmt.Errorf("review a bearer token: %w", errBusy)
	}
	defer r.waiting.endWait(client)
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	return r.tokenCalls.shareCall(ctx, k, func(ctx context.Context) (identity, error) {
		if err := r.slots.acquireSlot(ctx, client); err != nil {
			return identity{}, fmt.Errorf("review a bearer token: %w", err)
		}
		defer r.slots.releaseSlot(client)
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		answer, err := retryReview(ctx, r, TokenReview, func() (*authenticationv1.TokenReview, error) {
			return r.o.TokenReviewer.Create(ctx, review, metav1.CreateOptions{})
		})
		if err != nil {
			return identity{}, fmt.Errorf("review a bearer token: %w", err)
		}
		status := answer.Status
		switch {
		case status.Authenticated:
			cached := identity{user: convertUser(status.User), authenticated: true}
			r.tokens.putValue(k, cached, time.Now().Add(r.o.TokenTTL))
			return cached, nil
		case status.Error != "":
			return identity{}, fmt.Errorf("review a bearer token: %.200q", status.Error)
		}
		r.refusedTokens.putValue(k, identity{}, time.Now().Add(r.o.TokenTTL))
		return identity{}, nil
	})
}

// reviewAccess reports whether user may access this Node with the verb and subresource in attribute, by the cache or a
// SubjectAccessReview.
func (r *reviewer) reviewAccess(ctx context.Context, user User, attribute nodeattributes.Attribute) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, Extra: convertExtra(user.Extra),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: attribute.Verb, Version: "v1", Resource: "nodes", Subresource: attribute.Subresource, Name: r.o.NodeName,
		},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("encode an access review: %w", err)
	}
	k := r.cacheKey(text)
	now := time.Now()
	status, found := r.allowed.getValue(k, now)
	if !found {
		status, found = r.denied.getValue(k, now)
	}
	if !found {
		if status, err = r.requestAccessReview(ctx, k, spec); err != nil {
			return false, err
		}
	}
	if status.Allowed && status.Denied {
		return false, errors.New("the API server both allows and denies it")
	}
	return status.Allowed, nil
}

func (r *reviewer) requestAccessReview(
	ctx context.Context, key cacheKey, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	if !r.waitingUsers.startWait(spec.User) {
		return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, errBusy)
	}
	defer r.waitingUsers.endWait(spec.User)
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	return r.accessCalls.shareCall(ctx, key, func(ctx context.Context) (authorizationv1.SubjectAccessReviewStatus, error) {
		if err := r.userSlots.acquireSlot(ctx, spec.User); err != nil {
			return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, err)
		}
		defer r.userSlots.releaseSlot(spec.User)
		review := &authorizationv1.SubjectAccessReview{Spec: spec}
		answer, err := retryReview(ctx, r, AccessReview, func() (*authorizationv1.SubjectAccessReview, error) {
			return r.o.AccessReviewer.Create(ctx, review, metav1.CreateOptions{})
		})
		if err != nil {
			return authorizationv1.SubjectAccessReviewStatus{}, fmt.Errorf("review the access of %q: %w", spec.User, err)
		}
		if answer.Status.Allowed {
			r.allowed.putValue(key, answer.Status, time.Now().Add(r.o.AllowTTL))
		} else {
			r.denied.putValue(key, answer.Status, time.Now().Add(r.o.DenyTTL))
		}
		return answer.Status, nil
	})
}

// newWaitLimit returns a limit for the number of requests that wait for a review, in total and per client. maxReviews is the
// largest number of concurrent reviews.
func newWaitLimit(maxReviews int) waitLimit {
	return waitLimit{maxTotal: 8 * maxReviews, maxPerClient: 2 * maxReviews, reserved: 2}
}

// newSlots returns a limit for concurrent reviews. At most maxReviews run in total, and at most a quarter of them for one
// client.
func newSlots(maxReviews int) slots {
	return slots{maxTotal: maxReviews, maxPerClient: max(1, maxReviews/4)}
}

// retryReview calls send, which sends a review to the API server. It retries temporary errors, with at most maxAttempts
// attempts.
func retryReview[T any](ctx context.Context, r *reviewer, kind Review, send func() (*T, error)) (*T, error) {
	if err := ctx.Err(); err != nil { // select may choose the slot although ctx has ended
		return nil, err
	}
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) { // the timer of ctx may be late
		return nil, context.DeadlineExceeded
	}
	wait := firstRetry
	for i := 1; ; i++ {
		start := time.Now()
		answer, err := send()
		if call := r.o.Hooks.ReviewCompleted; call != nil {
			call(kind, time.Since(start), err)
		}
		if err == nil && answer == nil {
			return nil, errors.New("the reviewer returned neither an answer nor an error")
		}
		if err == nil || i == maxAttempts || !isRetryable(err) {
			return answer, err
		}
		if ended := sleep.For(ctx, backoff.Jitter(wait, 1, 1+retryJitter, r.o.Rand())); ended != nil {
			return nil, errors.Join(err, ended)
		}
		wait = time.Duration(float64(wait) * retryFactor)
	}
}

// isRetryable reports whether err is temporary, so that the review may succeed if it is sent again. Source: DefaultShouldRetry in
// k8s.io/apiserver/pkg/util/webhook.
func isRetryable(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

func (r *reviewer) cacheKey(data []byte) (k cacheKey) {
	h := hmac.New(sha256.New, r.salt)
	h.Write(data)
	h.Sum(k[:0])
	return k
}

func convertExtra(all map[string][]string) map[string]authorizationv1.ExtraValue {
	if all == nil {
		return nil
	}
	out := make(map[string]authorizationv1.ExtraValue, len(all))
	for name, values := range all {
		out[name] = values
	}
	return out
}
