// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/required"
	"github.com/seed81659283/nodeagent/volume"
)

// MaxTokens is the maximum number of tokens in a [Cache]: one for each volume of all pods of a large node. Further tokens are
// requested on each call.
const MaxTokens = 10_000

// MaxPodTokens is the maximum number of cached tokens of one pod, so that one pod cannot use up MaxTokens.
const MaxPodTokens = 100

// DefaultSeconds is the lifetime of a token if its request has none.
const DefaultSeconds = 3600

// When a token is renewed, and how often expired tokens are dropped.
const (
	maxAge        = 24 * time.Hour
	maxJitter     = 10 * time.Second
	cleanUpPeriod = time.Minute // time between two removals of expired tokens
)

// NeedsRefresh reports whether t must be replaced: after 24 h, or in the last fifth of its lifetime. random, a number in
// [0,1), moves this up to 10 s earlier, so that tokens are not replaced all at once.
func NeedsRefresh(t volume.Token, lifetimeSeconds int64, random float64, now time.Time) bool {
	jitter := time.Duration(random*maxJitter.Seconds()) * time.Second
	issued := t.Expires.Add(-time.Duration(lifetimeSeconds) * time.Second)
	lastFifth := time.Duration(lifetimeSeconds*20/100) * time.Second
	return now.After(issued.Add(maxAge-jitter)) || now.After(t.Expires.Add(-lastFifth-jitter))
}

// Cache caches service account tokens. Create it with [NewCache].
type Cache struct {
	from volume.TokenIssuer
	rand func() float64

	mu      sync.Mutex // guards the fields below
	tokens  map[volume.TokenRequest]volume.Token
	ofPod   map[string]int // number of tokens by UID of the pod
	cleaned time.Time
}

// NewCache returns an empty cache of tokens of the issuer from. It panics if from is nil. random returns numbers in [0,1);
// nil means rand.Float64 of math/rand/v2.
func NewCache(from volume.TokenIssuer, random func() float64) *Cache {
	required.MustArgs("token.NewCache", required.Arg{Name: "from", Value: from, Hint: "an apiserver.Tokens"})
	if random == nil {
		random = rand.Float64
	}
	return &Cache{from: from, rand: random, tokens: map[volume.TokenRequest]volume.Token{}, ofPod: map[string]int{}}
}

// TokenText returns the text of the token for request; see [Cache.Token].
func (c *Cache) TokenText(ctx context.Context, request volume.TokenRequest) (string, error) {
	t, err := c.Token(ctx, request)
	return t.Value, err
}

var _ volume.TokenIssuer = (*Cache)(nil)

// Token returns a valid token for request. It requests a new token if none is cached or the cached token is due for renewal.
// If the renewal fails, it returns the cached token until that expires.
func (c *Cache) Token(ctx context.Context, request volume.TokenRequest) (volume.Token, error) {
	if request.ExpirationSeconds <= 0 {
		request.ExpirationSeconds = DefaultSeconds
	}
	old, ok := c.cachedToken(request)
	if ok && !NeedsRefresh(old, request.ExpirationSeconds, c.rand(), time.Now()) {
		return old, nil
	}
	fresh, err := c.from.Token(ctx, request)
	switch {
	case err == nil:
		c.storeToken(request, fresh)
		return fresh, nil
	case !ok:
		return volume.Token{}, fmt.Errorf("token of service account %s/%s: %w", request.Namespace, request.ServiceAccount, err)
	case time.Now().After(old.Expires):
		return volume.Token{}, fmt.Errorf("token of service account %s/%s expired and refresh failed: %w", request.Namespace, request.ServiceAccount, err)
	default:
		return old, nil
	}
}

// Forget drops the tokens of the pod with UID podUID.
func (c *Cache) Forget(podUID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleteMatching(func(r volume.TokenRequest, _ volume.Token) bool { return r.PodUID == podUID })
}

// deleteMatching removes the tokens for which matches returns true. The caller holds c.mu.
func (c *Cache) deleteMatching(matches func(volume.TokenRequest, volume.Token) bool) {
	maps.DeleteFunc(c.tokens, func(r volume.TokenRequest, t volume.Token) bool {
		if !matches(r, t) {
			return false
		}
		if c.ofPod[r.PodUID]--; c.ofPod[r.PodUID] == 0 {
			delete(c.ofPod, r.PodUID)
		}
		return true
	})
}

func (c *Cache) cachedToken(request volume.TokenRequest) (volume.Token, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.cleaned) >= cleanUpPeriod {
		c.cleaned = now
		c.deleteMatching(func(other volume.TokenRequest, t volume.Token) bool { return other != request && now.After(t.Expires) })
	}
	t, ok := c.tokens[request]
	return t, ok
}

func (c *Cache) storeToken(request volume.TokenRequest, t volume.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.tokens[request]
	if !known && (len(c.tokens) >= MaxTokens || c.ofPod[request.PodUID] >= MaxPodTokens) {
		return
	}
	c.tokens[request] = t
	if !known {
		c.ofPod[request.PodUID]++
	}
}
