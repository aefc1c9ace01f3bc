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

// maxBody is how many bytes of a body a handler reads: no request of this API has more than a form.
const maxBody = 1 << 20

// deadlineStep is how much a deadline moves at least, so that one is not set for each line of a log.
const deadlineStep = time.Second

// boundBody gives the client a time to send what its headers have announced, also where no handler reads it.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(s.o.BodyTimeout)) == nil {
		r.Body = &timedBody{ReadCloser: r.Body, control: c}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
}

// timedBody takes the deadline back at the end of the body: what comes after it, such as that the client goes away, has none.
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

// stallWriter cuts off a client that takes nothing for a time. It is not safe for several goroutines.
type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	set     time.Time // when the deadline was set
}

func (w *stallWriter) extend() {
	now := time.Now()
	if now.Sub(w.set) < min(deadlineStep, w.stall/8) {
		return
	}
	w.set = now
	_ = w.control.SetWriteDeadline(now.Add(w.stall))
}

// Write writes with a deadline.
func (w *stallWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// Flush sends what was written, with a deadline.
func (w *stallWriter) Flush() {
	w.extend()
	_ = w.control.Flush()
}

// Unwrap is for [http.ResponseController].
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// unstalled bounds the time for which a client may read nothing. What net/http writes after the handler has the last deadline.
func (s *Server) unstalled(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &stallWriter{ResponseWriter: w, control: http.NewResponseController(w), stall: s.o.StallTimeout}
		h.ServeHTTP(p, r)
		p.set = time.Time{}
		p.extend()
	})
}

type handlerFunc = func(http.ResponseWriter, *http.Request, params)

// bounded is unstalled for a route.
func (s *Server) bounded(h handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request, p params) {
		s.unstalled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, p) })).ServeHTTP(w, r)
	}
}

// lasting is bounded for a request that may last for ever, and so ends when Run does.
func (s *Server) lasting(h handlerFunc) handlerFunc { return s.ending(s.bounded(h)) }

// ending ends the context of a request when Run ends.
func (s *Server) ending(h handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request, p params) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer s.long.add(cancel)()
		h(w, r.WithContext(ctx), p)
	}
}

// errStopping is why a request that may last for ever ends with the server.
var errStopping = errors.New("the server stops")

// longRequests are the requests that have to be told that Run ends. The zero value is ready.
type longRequests struct {
	mu    sync.Mutex // guards what follows
	next  int
	all   map[int]context.CancelCauseFunc
	ended bool
}

// add adds a request, and returns what removes it.
func (l *longRequests) add(cancel context.CancelCauseFunc) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		cancel(errStopping)
		return func() {}
	}
	if l.all == nil {
		l.all = make(map[int]context.CancelCauseFunc)
	}
	l.next++
	id := l.next
	l.all[id] = cancel
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.all, id)
	}
}

// end ends those that there are and those that come.
func (l *longRequests) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, cancel := range l.all {
		cancel(errStopping)
	}
}
