// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Size limits of one response in bytes, after decompression. client-go limits a watch event to 16 MiB.
const (
	MaxObject = 8 << 20  // one object; the API server stores objects of at most 3 MiB
	MaxList   = 16 << 20 // one page of a list; a larger page is requested again with fewer objects
)

// Timeouts of a watch.
const (
	watchStartTimeout = 30 * time.Second // until the response headers arrive
	watchIdleTimeout  = 3 * time.Minute  // without an event or bookmark; a server sends a bookmark every minute
)

// limitKey is the context key of the *responseLimit of a request. Without it, [MaxObject] is the limit.
type limitKey struct{}

// responseLimit limits the size of a response, and counts the bytes read.
type responseLimit struct{ limit, read int64 }

// limitTransport is a round tripper that limits the size of responses and the time without an event of watches.
type limitTransport struct {
	next http.RoundTripper
}

// WrappedRoundTripper returns the wrapped round tripper, as client-go requires.
func (g limitTransport) WrappedRoundTripper() http.RoundTripper { return g.next }

func (g limitTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return g.roundTripWatch(r)
	}
	response, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	limit, ok := r.Context().Value(limitKey{}).(*responseLimit)
	if !ok {
		limit = &responseLimit{limit: MaxObject}
	}
	limit.read = 0
	response.Body = &limitedBody{ReadCloser: response.Body, responseLimit: limit}
	return response, nil
}

// roundTripWatch sends a watch request. It cancels the watch if the response does not start within watchStartTimeout, or if
// no event arrives for watchIdleTimeout.
func (g limitTransport) roundTripWatch(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(watchStartTimeout, cancel)
	response, err := g.next.RoundTrip(r.WithContext(ctx))
	late := !timer.Stop() && r.Context().Err() == nil
	if late && err == nil {
		_ = response.Body.Close() // canceling ctx has ended the response already
	}
	if late {
		err = fmt.Errorf("the watch has not begun within %s: %w", watchStartTimeout, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &watchBody{ReadCloser: response.Body, cancel: cancel, timer: time.AfterFunc(watchIdleTimeout, cancel)}
	return response, nil
}

// limitedBody is a response body of limited size.
type limitedBody struct {
	io.ReadCloser
	*responseLimit
}

func (l *limitedBody) Read(b []byte) (int, error) {
	if left := l.limit - l.read; int64(len(b)) > left+1 {
		b = b[:left+1]
	}
	n, err := l.ReadCloser.Read(b)
	if l.read += int64(n); l.read > l.limit {
		return n, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, l.limit)
	}
	return n, err
}

// watchBody is the response body of a watch. A broken connection is reported as [io.EOF]: the watch is resumed from its version,
// without a list.
type watchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	timer  *time.Timer
	once   sync.Once
}

// Read restarts the timer that ends a watch without events.
func (w *watchBody) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.timer.Reset(watchIdleTimeout)
	}
	if err != nil {
		err = io.EOF
	}
	return n, err
}

func (w *watchBody) Close() error {
	w.once.Do(func() {
		w.timer.Stop()
		w.cancel()
	})
	return w.ReadCloser.Close()
}

// tokenFile is a round tripper that adds the bearer token of a file to requests.
type tokenFile struct {
	path string
	next http.RoundTripper

	mu    sync.Mutex
	token string
	read  time.Time
}

// tokenMaxAge is how long a token is used before its file is read again.
const tokenMaxAge = 10 * time.Second

// WrappedRoundTripper returns the wrapped round tripper, as client-go requires.
func (t *tokenFile) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tokenFile) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.currentToken(time.Now())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return t.next.RoundTrip(r)
}

// currentToken returns the token in the file, read at most once per tokenMaxAge. After a read error it returns the previous
// token.
func (t *tokenFile) currentToken(now time.Time) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && now.Sub(t.read) < tokenMaxAge {
		return t.token, nil
	}
	b, err := readFile(t.path)
	if err != nil && t.token == "" {
		return "", fmt.Errorf("read token: %w", err)
	}
	if token := strings.TrimSpace(string(b)); token != "" {
		t.token = token
	}
	if t.token == "" {
		return "", fmt.Errorf("read token: %s is empty", t.path)
	}
	t.read = now
	return t.token, nil
}

// closeIdle closes the idle connections of t, if t or a transport that it wraps can do this.
func closeIdle(t http.RoundTripper) {
	for t != nil {
		if c, ok := t.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
			return
		}
		w, ok := t.(interface{ WrappedRoundTripper() http.RoundTripper })
		if !ok {
			return
		}
		t = w.WrappedRoundTripper()
	}
}
