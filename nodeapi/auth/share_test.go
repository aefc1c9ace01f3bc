// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/authtest"
	"github.com/seed81659283/nodeagent/nodeapi/auth"
)

// withAddress sets the client address of a request.
func withAddress(r *http.Request, address string) *http.Request {
	r.RemoteAddr = address
	return r
}

// Clients with invalid tokens, from any number of addresses, do not prevent the authentication of a client of another address, at 50
// reviews a second.
func TestInvalidTokensDoNotDelayOtherAddresses(t *testing.T) {
	for name, address := range map[string]func(i int) string{
		"one address":       func(int) string { return "10.0.0.1:1" },
		"one IPv6 network":  func(i int) string { return fmt.Sprintf("[fd00::%x]:1", i+1) },
		"hundred addresses": func(i int) string { return fmt.Sprintf("10.0.0.%d:%d", 1+i%100, i) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reviewer := new(authtest.Reviewer)
				reviewer.SetPace(20 * time.Millisecond)
				reviewer.AddToken("good", bob)
				a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true})
				ctx, cancel := context.WithCancel(t.Context())
				var group sync.WaitGroup
				var refused, busy atomic.Int64
				flood := func() {
					for i := range 2000 {
						group.Go(func() {
							r := withAddress(request(http.MethodGet, "/pods", fmt.Sprint("bad", i)), address(i)).WithContext(ctx)
							if _, refusal := a.Check(r); refusal != nil && refusal.Code == http.StatusTooManyRequests {
								busy.Add(1)
							}
							refused.Add(1)
						})
					}
					synctest.Wait()
				}
				flood()
				waiting := 2000 - int(refused.Load())
				t.Logf("%d requests wait", waiting)
				assert.LessOrEqual(t, waiting, 256+2*100)
				assert.EqualValues(t, refused.Load(), busy.Load())
				start := time.Now()
				for range 2 { // the second valid request has its token in the cache
					flood()
					user, refusal := a.Check(withAddress(request(http.MethodGet, "/pods", "good"), "10.1.0.1:1"))
					require.Nil(t, refusal)
					assert.Equal(t, "bob", user.Name)
				}
				t.Logf("authenticated after %v", time.Since(start))
				assert.Less(t, time.Since(start), 3*time.Second)
				cancel()
				before := time.Now()
				group.Wait()
				assert.Equal(t, before, time.Now(), "a canceled request ends at once")
				time.Sleep(time.Minute)
				assert.Empty(t, a.Clients())
			})
		})
	}
}

// Many requests with one invalid token share one review. At most as many of them wait as requests with different tokens.
func TestRequestsWithOneInvalidTokenShareReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		reviewer.SetHang(true)
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true})
		before := runtime.NumGoroutine()
		var group sync.WaitGroup
		for range 2000 {
			group.Go(func() { _, _ = a.Check(request(http.MethodGet, "/pods", "bad")) })
		}
		synctest.Wait()
		assert.LessOrEqual(t, runtime.NumGoroutine()-before, 64)
		assert.Len(t, reviewer.TakeReviews(), 1)
		group.Wait()
	})
}

// Token reviews do not use the slots of access reviews of authenticated users.
func TestInvalidTokensDoNotDelayAccessReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		reviewer.AddToken("good", bob)
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AccessReviewer: reviewer.Access()})
		reviewer.Allow("bob", "get pods")
		_, err := a.Authenticate(request(http.MethodGet, "/pods", "good"))
		require.NoError(t, err)
		reviewer.SetHangTokens(true)
		var group sync.WaitGroup
		for i := range 2000 {
			group.Go(func() {
				_, _ = a.Check(withAddress(request(http.MethodGet, "/pods", fmt.Sprint("bad", i)), fmt.Sprintf("10.0.0.%d:1", i%200)))
			})
		}
		synctest.Wait()
		start := time.Now()
		_, refusal := a.Check(request(http.MethodGet, "/pods", "good"))
		require.Nil(t, refusal)
		assert.Equal(t, start, time.Now())
		group.Wait()
	})
}

// The response to a request above the limit has a Retry-After header.
func TestResponse429HasRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reviewer := new(authtest.Reviewer)
		reviewer.SetHang(true)
		a := newAccess(t, auth.Options{TokenReviewer: reviewer.Tokens(), AlwaysAllow: true, MaxReviews: 1})
		var group sync.WaitGroup
		codes := make([]int, 3)
		for i := range codes {
			group.Go(func() {
				w := httptest.NewRecorder()
				a.Handler(http.NotFoundHandler()).ServeHTTP(w, request(http.MethodGet, "/pods", fmt.Sprint("bad", i)))
				codes[i] = w.Code
				assert.Equal(t, w.Code == http.StatusTooManyRequests, w.Header().Get("Retry-After") == "1")
			})
		}
		group.Wait()
		slow := 0
		for _, code := range codes {
			if code == http.StatusTooManyRequests {
				slow++
			}
		}
		assert.Equal(t, 2, slow, "one request is above the waiting limit, one gets no slot in time: %v", codes)
	})
}

// Refused requests log a bounded number of lines.
func TestRefusedRequestsLogBoundedLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		reviewer := new(authtest.Reviewer)
		a := newAccess(t, auth.Options{
			TokenReviewer: reviewer.Tokens(), AlwaysAllow: true,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		send := func() {
			r := request("M"+strings.Repeat("X", 9000), "/"+strings.Repeat("p", 60_000), strings.Repeat("t", 9000))
			a.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), r)
		}
		send()
		assert.Less(t, log.Len(), 1000)
		assert.Contains(t, log.String(), "level=DEBUG")
		for range 1000 {
			send()
		}
		assert.Less(t, log.Len(), 10_000)
		time.Sleep(time.Second)
		log.Reset()
		send()
		assert.Contains(t, log.String(), "withheld=991")
	})
}
