// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// maxBody limits the size of a request body in bytes. The largest valid body is a form.
const maxBody = 1 << 20

// deadlineStep is the shortest time between two changes of a write deadline. Setting it for each log line would be slow.
const deadlineStep = time.Second

// limitBody limits the size of the request body, and the time for reading it. It is called before a handler, which may never
// read the body.
func (s *Server) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(s.o.BodyTimeout)) == nil {
		r.Body = &timedBody{ReadCloser: r.Body, control: c}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
}

// timedBody is a request body with a read deadline. At the end of the body it clears the deadline, which would otherwise break
// the connection later.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// stallWriter sets a write deadline before each write. A client that stops reading is thereby disconnected. It is not safe for
// concurrent use.
type stallWriter struct {
	http.ResponseWriter
	control     *http.ResponseController
	timeout     time.Duration // without progress; then the connection fails
	deadlineSet time.Time     // when the deadline was last set
}

func (w *stallWriter) extendDeadline() {
	now := time.Now()
	if now.Sub(w.deadlineSet) < min(deadlineStep, w.timeout/8) {
		return
	}
	w.deadlineSet = now
	_ = w.control.SetWriteDeadline(now.Add(w.timeout))
}

// Write extends the deadline and writes p.
func (w *stallWriter) Write(p []byte) (int, error) {
	w.extendDeadline()
	return w.ResponseWriter.Write(p)
}

// Flush extends the deadline and flushes the response.
func (w *stallWriter) Flush() {
	w.extendDeadline()
	_ = w.control.Flush()
}

// Unwrap returns the wrapped ResponseWriter, as [http.ResponseController] requires.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// withStallTimeout wraps h so that the connection fails if the client accepts no data for Options.StallTimeout.
func (s *Server) withStallTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &stallWriter{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.o.StallTimeout}
		h.ServeHTTP(p, r)
		p.deadlineSet = time.Time{}
		p.extendDeadline() // net/http writes buffered data after h has returned
	})
}

type handlerFunc = func(http.ResponseWriter, *http.Request, params)

// routeWithStallTimeout applies withStallTimeout to the handler of a route: the connection fails if the client accepts no
// data for Options.StallTimeout.
func (s *Server) routeWithStallTimeout(handler handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request, p params) {
		s.withStallTimeout(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r, p) })).ServeHTTP(w, r)
	}
}

// longRunning wraps a handler of requests without a time limit, such as followed logs. It cancels them when [Server.Run] stops.
func (s *Server) longRunning(handler handlerFunc) handlerFunc {
	return s.cancelOnStop(s.routeWithStallTimeout(handler))
}

// cancelOnStop wraps a handler so that the context of each request is canceled when [Server.Run] stops.
func (s *Server) cancelOnStop(handler handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request, p params) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer s.longRequests.addRequest(cancel)()
		handler(w, r.WithContext(ctx), p)
	}
}

// errStopping is the cause with which long-running requests are canceled when the server stops.
var errStopping = errors.New("the server stops")

// longRequests has the cancel functions of the running long requests. Server.Run calls them when it ends. The zero value is ready
// for use.
type longRequests struct {
	mu       sync.Mutex // guards the fields below
	lastID   int
	cancels  map[int]context.CancelCauseFunc
	canceled bool
}

// addRequest registers a long-running request, which cancelAll cancels. The caller calls remove when the request ends.
func (l *longRequests) addRequest(cancel context.CancelCauseFunc) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.canceled {
		cancel(errStopping)
		return func() {}
	}
	if l.cancels == nil {
		l.cancels = make(map[int]context.CancelCauseFunc)
	}
	l.lastID++
	id := l.lastID
	l.cancels[id] = cancel
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.cancels, id)
	}
}

// cancelAll cancels all registered requests. From then on, addRequest cancels each new request at once.
func (l *longRequests) cancelAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.canceled = true
	for _, cancel := range l.cancels {
		cancel(errStopping)
	}
}
