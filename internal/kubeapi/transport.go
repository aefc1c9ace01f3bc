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

// Limits of what is read of one answer, in bytes, after decompression. An event of a watch is limited to 16 MiB by
// client-go's framer.
const (
	MaxObject = 8 << 20  // an object; the API server takes none larger than 3 MiB
	MaxList   = 16 << 20 // a page of a list, which is asked for again with fewer objects if it is larger
)

// Limits of a watch.
const (
	watchStartTimeout = 30 * time.Second // until it has begun
	watchIdleTimeout  = 3 * time.Minute  // without an event or a bookmark, of which a server sends one a minute
)

// limitKey is the key of an *answerLimit in the context of a request, where the limit is not [MaxObject].
type limitKey struct{}

// answerLimit bounds the answer to a request, and counts the bytes that were read of the last one.
type responseLimit struct{ limit, read int64 }

// guard is a round tripper that bounds size and silence of answers.
type limitTransport struct {
	next http.RoundTripper
}

// WrappedRoundTripper is how client-go finds the transport.
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

// watch gives up a watch that does not begin, and one that says nothing for too long.
func (g limitTransport) roundTripWatch(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	timer := time.AfterFunc(watchStartTimeout, cancel)
	response, err := g.next.RoundTrip(r.WithContext(ctx))
	late := !timer.Stop() && r.Context().Err() == nil
	if late && err == nil {
		_ = response.Body.Close() // the context has ended it already
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

// limited is a body of limited size.
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

// watched is the body of a watch. However its connection ends, the watch just ends: it goes on where it was, and nothing has
// to be listed.
type watchBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	timer  *time.Timer
	once   sync.Once
}

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

// tokenFile adds the token in a file to requests.
type tokenFile struct {
	path string
	next http.RoundTripper

	mu    sync.Mutex
	token string
	read  time.Time
}

// tokenPeriod is how old what was read of a token's file may be.
const tokenMaxAge = 10 * time.Second

// WrappedRoundTripper is how client-go finds the transport.
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

// current returns the token. A file that is unreadable for a moment leaves the last one in use.
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

// closeIdle closes the connections of a transport that nothing uses, if it can.
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
