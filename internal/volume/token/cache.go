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

// MaxTokens is how many tokens a [Cache] keeps: one for each volume of all pods of a large node. What is over that is asked for
// each time.
const MaxTokens = 10_000

// MaxPodTokens is how many of them belong to one pod, so that no pod uses up those of the others.
const MaxPodTokens = 100

// DefaultSeconds is the lifetime of a token whose request names none.
const DefaultSeconds = 3600

// When a token is due.
const (
	maxAge    = 24 * time.Hour
	maxJitter = 10 * time.Second
	cleanUp   = time.Minute // between two times at which expired tokens are dropped
)

// Due reports whether a new token is to be had in place of t, which is valid for so many seconds in all. The random number is
// from 0 to 1 and takes up to 10 whole seconds off, 1 excluded.
func Due(t volume.Token, seconds int64, random float64, now time.Time) bool {
	jitter := time.Duration(random*maxJitter.Seconds()) * time.Second
	issued := t.Expires.Add(-time.Duration(seconds) * time.Second)
	lastFifth := time.Duration(seconds*20/100) * time.Second
	return now.After(issued.Add(maxAge-jitter)) || now.After(t.Expires.Add(-lastFifth-jitter))
}

// Cache keeps tokens. Make one with [NewCache].
type Cache struct {
	from volume.TokenIssuer
	rand func() float64

	mu      sync.Mutex // guards what follows
	tokens  map[volume.TokenRequest]volume.Token
	ofPod   map[string]int // by UID
	cleaned time.Time
}

// NewCache returns a cache of tokens. A nil rand is that of math/rand/v2. It panics if there is no issuer.
func NewCache(from volume.TokenIssuer, random func() float64) *Cache {
	required.MustArgs("token.NewCache", required.Arg{Name: "from", Value: from, Hint: "an apiserver.Tokens"})
	if random == nil {
		random = rand.Float64
	}
	return &Cache{from: from, rand: random, tokens: map[volume.TokenRequest]volume.Token{}, ofPod: map[string]int{}}
}

// Get returns the text of a token that is valid.
func (c *Cache) Get(ctx context.Context, r volume.TokenRequest) (string, error) {
	t, err := c.Token(ctx, r)
	return t.Value, err
}

var _ volume.TokenIssuer = (*Cache)(nil)

// Token returns a token that is valid.
func (c *Cache) Token(ctx context.Context, r volume.TokenRequest) (volume.Token, error) {
	if r.Seconds <= 0 {
		r.Seconds = DefaultSeconds
	}
	old, ok := c.find(r)
	if ok && !Due(old, r.Seconds, c.rand(), time.Now()) {
		return old, nil
	}
	fresh, err := c.from.Token(ctx, r)
	switch {
	case err == nil:
		c.keep(r, fresh)
		return fresh, nil
	case !ok:
		return volume.Token{}, fmt.Errorf("token of service account %s/%s: %w", r.Namespace, r.ServiceAccount, err)
	case time.Now().After(old.Expires):
		return volume.Token{}, fmt.Errorf("token of service account %s/%s expired and refresh failed: %w", r.Namespace, r.ServiceAccount, err)
	default:
		return old, nil
	}
}

// Forget drops the tokens of a pod.
func (c *Cache) Forget(podUID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(func(r volume.TokenRequest, _ volume.Token) bool { return r.PodUID == podUID })
}

// drop removes the tokens for which is returns true. The caller holds the lock.
func (c *Cache) drop(is func(volume.TokenRequest, volume.Token) bool) {
	maps.DeleteFunc(c.tokens, func(r volume.TokenRequest, t volume.Token) bool {
		if !is(r, t) {
			return false
		}
		if c.ofPod[r.PodUID]--; c.ofPod[r.PodUID] == 0 {
			delete(c.ofPod, r.PodUID)
		}
		return true
	})
}

func (c *Cache) find(r volume.TokenRequest) (volume.Token, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.cleaned) >= cleanUp {
		c.cleaned = now
		c.drop(func(other volume.TokenRequest, t volume.Token) bool { return other != r && now.After(t.Expires) })
	}
	t, ok := c.tokens[r]
	return t, ok
}

func (c *Cache) keep(r volume.TokenRequest, t volume.Token) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.tokens[r]
	if !known && (len(c.tokens) >= MaxTokens || c.ofPod[r.PodUID] >= MaxPodTokens) {
		return
	}
	c.tokens[r] = t
	if !known {
		c.ofPod[r.PodUID]++
	}
}
