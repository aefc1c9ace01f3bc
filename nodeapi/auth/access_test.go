// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

var bob = authenticationv1.UserInfo{Username: "bob", Groups: []string{"users"}}

func newAccess(t *testing.T, o auth.Options) *auth.Access {
	t.Helper()
	o.NodeName = "n"
	o.Rand = func() float64 { return 0 }
	a, err := auth.New(o)
	require.NoError(t, err)
	return a
}

func request(method, path, token string) *http.Request {
	r := httptest.NewRequest(method, path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

func TestNewNamesMissingOption(t *testing.T) {
	reviewer := new(authtest.Reviewer)
	for want, o := range map[string]auth.Options{
		"no way to authenticate": {AlwaysAllow: true},
		"no way to authorize":    {Anonymous: true},
		"exclude each other":     {Anonymous: true, AlwaysAllow: true, AccessReviewer: reviewer.Access()},
		"NodeName: required":     {Anonymous: true, AccessReviewer: reviewer.Access()},
		"may be negative":        {Anonymous: true, AlwaysAllow: true, CacheSize: -1},
	} {
		_, err := auth.New(o)
		assert.ErrorContains(t, err, want)
	}
}

// The test combines client certificates, tokens in both places, and anonymous requests. It checks the user of each request,
// and that invalid credentials never become anonymous.
func TestAuthenticationByEachCredential(t *testing.T) {
	ca, foreign := authtest.NewAuthority(t, "ca"), authtest.NewAuthority(t, "foreign")
	now := time.Now()
	alice := x509.Certificate{Subject: pkix.Name{CommonName: "alice", Organization: []string{"ops"}}}
	with := func(change func(*x509.Certificate)) x509.Certificate {
		c := alice
		change(&c)
		return c
	}
	certificates := map[string]struct {
		pair  tls.Certificate
		valid bool
		bad   bool
	}{
		"none":          {},
		"valid":         {pair: ca.Sign(t, alice), valid: true},
		"foreign":       {pair: foreign.Sign(t, alice), bad: true},
		"expired":       {pair: ca.Sign(t, with(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(-2*time.Hour), now.Add(-time.Hour) })), bad: true},
		"not yet valid": {pair: ca.Sign(t, with(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(2*time.Hour) })), bad: true},
		"wrong usage":   {pair: ca.Sign(t, with(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })), bad: true},
		"without name":  {pair: ca.Sign(t, with(func(c *x509.Certificate) { c.Subject.CommonName = "" }))},
	}
	encode := base64.RawURLEncoding.EncodeToString
	tokens := map[string]struct {
		header     http.Header
		valid, bad bool
	}{
		"none":                    {header: http.Header{}},
		"valid":                   {header: http.Header{"Authorization": {"bearer  ignored", "x"}}},
		"good":                    {header: http.Header{"Authorization": {"Bearer good"}}, valid: true},
		"bad":                     {header: http.Header{"Authorization": {"Bearer bad"}}, bad: true},
		"another scheme":          {header: http.Header{"Authorization": {"Basic good"}}},
		"socket":                  {header: socket("v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + encode([]byte("good"))), valid: true},
		"bad socket":              {header: socket("v4.channel.k8s.io, base64url.bearer.authorization.k8s.io." + encode([]byte("bad"))), bad: true},
		"socket alone":            {header: socket("base64url.bearer.authorization.k8s.io." + encode([]byte("good"))), bad: true},
		"two bearer subprotocols": {header: socket("x, base64url.bearer.authorization.k8s.io.Z29vZA, base64url.bearer.authorization.k8s.io.Z29vZA"), bad: true},
		"broken socket":           {header: socket("x, base64url.bearer.authorization.k8s.io.!"), bad: true},
		"no socket":               {header: http.Header{"Sec-Websocket-Protocol": {"x, base64url.bearer.authorization.k8s.io.Z29vZA"}}},
	}
	for _, anonymous := range []bool{false, true} {
		reviewer := new(authtest.Reviewer)
		reviewer.AddToken("good", bob)
		a := newAccess(t, auth.Options{ClientCAs: ca.Pool, TokenReviewer: reviewer.Tokens(), Anonymous: anonymous, AlwaysAllow: true})
		for certName, c := range certificates {
			for tokenName, tc := range tokens {
				name := fmt.Sprintf("certificate %s, token %s, anonymous %t", certName, tokenName, anonymous)
				r := httptest.NewRequest(http.MethodGet, "/pods", nil)
				r.Header = tc.header.Clone()
				r.TLS = &tls.ConnectionState{}
				if c.pair.Leaf != nil {
					r.TLS.PeerCertificates = []*x509.Certificate{c.pair.Leaf}
				}
				user, err := a.Authenticate(r)
				switch {
				case c.valid:
					assert.Equal(t, "alice", user.Name, name)
					assert.Equal(t, []string{"ops", "system:authenticated"}, user.Groups, name)
				case tc.valid:
					assert.Equal(t, "bob", user.Name, name)
				case c.bad || tc.bad:
					assert.Error(t, err, name)
					assert.Empty(t, user, name)
				case anonymous:
					assert.Equal(t, auth.User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, user, name)
				default:
					assert.ErrorIs(t, err, auth.ErrUnauthenticated, name)
				}
				if c.valid || tc.valid {
					require.NoError(t, err, name)
					assert.Empty(t, r.Header.Get("Authorization"), name)
					assert.NotContains(t, r.Header.Get("Sec-Websocket-Protocol"), "bearer", name+": the token must be removed from the request")
				}
			}
		}
	}
}

func socket(protocols string) http.Header {
	return http.Header{"Upgrade": {"websocket"}, "Connection": {"keep-alive, Upgrade"}, "Sec-Websocket-Protocol": {protocols}}
}

// For each path and rule, exactly the rules of the kubelet for the path authorize it, and the responses are those of the
// kubelet.
func TestAuthorizationByPathAndRule(t *testing.T) {
	all := []string{"pods", "proxy", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz"}
	verbs := map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": ""}
	for path, subresources := range map[string][]string{
		"/pods": {"pods", "proxy"}, "/pods/x": {"pods", "proxy"}, "/podsx": {"proxy"}, "/runningpods/": {"pods", "proxy"},
		"/healthz/ping": {"healthz", "proxy"}, "/configz": {"configz", "proxy"}, "/stats/summary": {"stats"}, "/metrics/cadvisor": {"metrics"},
		"/logs/x": {"log"}, "/checkpoint/a/b/c": {"checkpoint"}, "/statusz": {"statusz"}, "/flagz": {"configz"}, "/exec/a/b/c": {"proxy"},
		"/run/a/b/c": {"proxy"}, "/containerLogs/a/b/c": {"proxy"}, "/debug/pprof/": {"proxy"},
	} {
		for method, verb := range verbs {
			if method == "GET" && (strings.HasPrefix(path, "/exec") || strings.HasPrefix(path, "/run/")) {
				verb = "create"
			}
			for _, rule := range all {
				reviewer := new(authtest.Reviewer)
				reviewer.AddToken("good", bob)
				reviewer.Allow("bob", verb+" "+rule)
				a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AccessReviewer: reviewer.Access()})
				_, refusal := a.Check(request(method, path, "good"))
				name := method + " " + path + " with " + rule
				if slices.Contains(subresources, rule) {
					assert.Nil(t, refusal, name)
					continue
				}
				require.NotNil(t, refusal, name)
				assert.Equal(t, http.StatusForbidden, refusal.Code, name)
				assert.Equal(t, fmt.Sprintf("Forbidden (user=bob, verb=%s, resource=nodes, subresource(s)=%v)\n", verb, subresources), refusal.Text, name)
			}
		}
	}
}

func TestRunByGetAuthorizesExecByGet(t *testing.T) {
	reviewer := new(authtest.Reviewer)
	reviewer.AddToken("good", bob)
	reviewer.Allow("bob", "get proxy")
	for byGet, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusOK} {
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AccessReviewer: reviewer.Access(), RunByGet: byGet})
		w := httptest.NewRecorder()
		a.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, request(http.MethodGet, "/exec/a/b/c", "good"))
		assert.Equal(t, want, w.Code)
	}
}

// A review is cached for its TTL, also while the API server is unavailable, and not longer.
func TestReviewsAreCachedForTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		reviewer.AddToken("good", bob)
		reviewer.Allow("bob", "get stats")
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AccessReviewer: reviewer.Access()})
		code := func(path, token string) int {
			_, refusal := a.Check(request(http.MethodGet, path, token))
			if refusal == nil {
				return http.StatusOK
			}
			return refusal.Code
		}
		assert.Equal(t, 200, code("/stats/x", "good"))
		assert.Equal(t, 403, code("/logs/x", "good"))
		assert.Equal(t, 401, code("/stats/x", "bad"))
		assert.Equal(t, []string{"good", "bob get stats", "bob get log", "bad"}, reviewer.TakeReviews())

		reviewer.SetError(errors.New("away"))
		time.Sleep(auth.DefaultDenyTTL - time.Second)
		assert.Equal(t, 200, code("/stats/x", "good"))
		assert.Equal(t, 403, code("/logs/x", "good"))
		assert.Empty(t, reviewer.TakeReviews(), "reviews are cached")
		time.Sleep(time.Second)
		assert.Equal(t, 500, code("/logs/x", "good"), "the cached denial has expired, and the review fails")
		time.Sleep(auth.DefaultTokenTTL - auth.DefaultDenyTTL)
		assert.Equal(t, 401, code("/stats/x", "good"), "the cached token has expired, and the review fails")
		reviewer.SetError(nil)
		assert.Equal(t, 200, code("/stats/x", "good"), "failed reviews are not cached")
		assert.Equal(t, []string{"bob get log", "good", "good"}, reviewer.TakeReviews())
		time.Sleep(auth.DefaultAllowTTL - auth.DefaultTokenTTL)
		assert.Equal(t, 200, code("/stats/x", "good"))
		assert.Equal(t, []string{"good", "bob get stats"}, reviewer.TakeReviews(), "an allowed access expires after 5 minutes")
	})
}

// While the API server hangs, a request takes the timeout of a review. Equal requests wait for one review and get its
// result.
func TestHangingAPIServerCostsOneReviewAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		reviewer.SetHang(true)
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AccessReviewer: reviewer.Access(), MaxReviews: 8})
		start := time.Now()
		var refused atomic.Int64
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if _, err := a.Authenticate(request(http.MethodGet, "/pods", fmt.Sprint("token", i%10))); err != nil {
					refused.Add(1)
				}
			})
		}
		group.Wait()
		assert.EqualValues(t, 100, refused.Load())
		assert.Equal(t, auth.DefaultTimeout, time.Since(start))
		assert.Len(t, reviewer.TakeReviews(), 2, "at most two reviews for one address at a time")

		reviewer.AddToken("good", bob)
		ctx, cancel := context.WithCancel(t.Context())
		group.Go(func() {
			_, err := a.Authenticate(request(http.MethodGet, "/pods", "good").WithContext(ctx))
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		group.Go(func() {
			user, err := a.Authenticate(request(http.MethodGet, "/pods", "good"))
			assert.NoError(t, err, "a client that disconnects does not cancel a shared review")
			assert.Equal(t, "bob", user.Name)
		})
		synctest.Wait()
		reviewer.SetHang(false)
		cancel()
		group.Wait()
		assert.Equal(t, []string{"good", "good"}, reviewer.TakeReviews())
	})
}

func TestReviewIsRetriedWithBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true})
		reviewer.SetError(apierrors.NewInternalError(errors.New("trouble")))
		start := time.Now()
		_, err := a.Authenticate(request(http.MethodGet, "/pods", "x"))
		require.Error(t, err)
		assert.Len(t, reviewer.TakeReviews(), 5)
		assert.Equal(t, 500*time.Millisecond+750*time.Millisecond+1125*time.Millisecond+1687500*time.Microsecond, time.Since(start))
		reviewer.SetError(errors.New("for good"))
		_, err = a.Authenticate(request(http.MethodGet, "/pods", "x"))
		require.Error(t, err)
		assert.Len(t, reviewer.TakeReviews(), 1)
	})
}

// Many invalid tokens do not evict a valid token from the cache. They use a bounded cache of their own.
func TestInvalidTokensDoNotEvictValidToken(t *testing.T) {
	reviewer := new(authtest.Reviewer)
	reviewer.AddToken("good", bob)
	a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true, CacheSize: 10})
	_, err := a.Authenticate(request(http.MethodGet, "/", "good"))
	require.NoError(t, err)
	for i := range 1000 {
		_, err := a.Authenticate(request(http.MethodGet, "/", fmt.Sprint("bad", i)))
		require.Error(t, err)
	}
	reviewer.TakeReviews()
	_, err = a.Authenticate(request(http.MethodGet, "/", "good"))
	require.NoError(t, err)
	assert.Empty(t, reviewer.TakeReviews())
}
