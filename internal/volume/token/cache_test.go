// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/volume"
)

// A token of an hour is due between 2,870 s and 2,880 s after its issue. A token of a week is due after a day.
func TestNeedsRefreshByAgeAndLifetime(t *testing.T) {
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		seconds int64
		random  float64
		age     time.Duration
		want    bool
	}{
		"young":                               {3600, 0.999, 2870 * time.Second, false},
		"old enough":                          {3600, 0, 2881 * time.Second, true},
		"jitter":                              {3600, 0.999, 2872 * time.Second, true},
		"no jitter":                           {3600, 0, 2872 * time.Second, false},
		"token of a week, older than a day":   {7 * 86400, 0, 24*time.Hour + time.Second, true},
		"token of a week, younger than a day": {7 * 86400, 0, 24*time.Hour - time.Second, false},
		"jitter of whole seconds":             {3600, 0.95, 2880*time.Second - 9*time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			tok := volume.Token{Expires: issued.Add(time.Duration(c.seconds) * time.Second)}
			assert.Equal(t, c.want, token.NeedsRefresh(tok, c.seconds, c.random, issued.Add(c.age)))
		})
	}
}

// issuer counts the tokens that it issues.
type issuer struct {
	issued int
	err    error
}

func (i *issuer) Token(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
	if i.err != nil {
		return volume.Token{}, i.err
	}
	i.issued++
	return volume.Token{Value: fmt.Sprint("token", i.issued), Expires: time.Now().Add(time.Duration(r.ExpirationSeconds) * time.Second)}, nil
}

func get(t *testing.T, c *token.Cache, r volume.TokenRequest) string {
	t.Helper()
	text, err := c.TokenText(t.Context(), r)
	require.NoError(t, err)
	return text
}

func TestCacheRefreshesTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &issuer{}
		c := token.NewCache(from, func() float64 { return 0 })
		r := volume.TokenRequest{Namespace: "default", ServiceAccount: "app", PodUID: "u1"}
		assert.Equal(t, "token1", get(t, c, r))
		time.Sleep(2870 * time.Second)
		assert.Equal(t, "token1", get(t, c, r))
		time.Sleep(11 * time.Second)
		assert.Equal(t, "token2", get(t, c, r), "a token in the last fifth of its lifetime is replaced")

		other := r
		other.Audience = "vault"
		assert.Equal(t, "token3", get(t, c, other))

		from.err = errors.New("no route")
		time.Sleep(3000 * time.Second)
		assert.Equal(t, "token2", get(t, c, r), "a token that cannot be refreshed is used until its expiry")
		time.Sleep(601 * time.Second)
		_, err := c.TokenText(t.Context(), r)
		require.ErrorContains(t, err, "token of service account default/app expired and refresh failed: no route")
		assert.NotContains(t, err.Error(), "token2")

		c.Forget("u1")
		_, err = c.TokenText(t.Context(), r)
		require.ErrorContains(t, err, "token of service account default/app: no route")
		from.err = nil
		assert.Equal(t, "token4", get(t, c, r))
	})
}

// A pod with tokens for 20,000 audiences leaves capacity for other pods.
func TestCacheLimitsTokensPerPod(t *testing.T) {
	from := &issuer{}
	c := token.NewCache(from, func() float64 { return 0 })
	many := volume.TokenRequest{Namespace: "default", ServiceAccount: "app", PodUID: "many"}
	for i := range 2 * token.MaxTokens {
		many.Audience = fmt.Sprint(i)
		get(t, c, many)
	}
	other := volume.TokenRequest{Namespace: "default", ServiceAccount: "app", PodUID: "other"}
	require.Equal(t, get(t, c, other), get(t, c, other), "the token of another pod is cached")
	require.NotEqual(t, get(t, c, many), get(t, c, many), "tokens above the limit of the pod are not cached")
	many.Audience = "0"
	require.Equal(t, get(t, c, many), get(t, c, many))
	c.Forget("many")
	many.Audience = "new"
	require.Equal(t, get(t, c, many), get(t, c, many))
}

func TestNewCachePanicsWithoutIssuer(t *testing.T) {
	require.Panics(t, func() { token.NewCache(nil, nil) })
}

func ExampleCache() {
	cache := token.NewCache(volume.TokenIssuerFunc(func(_ context.Context, r volume.TokenRequest) (volume.Token, error) {
		return volume.Token{Value: "of " + r.ServiceAccount, Expires: time.Now().Add(time.Hour)}, nil
	}), nil)
	text, err := cache.TokenText(context.Background(), volume.TokenRequest{Namespace: "default", ServiceAccount: "app", PodUID: "u1"})
	fmt.Println(text, err)
	// Output:
	// of app <nil>
}
