// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodelogs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"time"
)

// What a [Handler] does where its options say nothing.
const (
	DefaultDir       = "/var/log"
	DefaultJournal   = "journalctl"
	DefaultTimeout   = 30 * time.Second // the kubelet's
	DefaultMaxOutput = 1 << 30
	DefaultMaxRuns   = 4
)

// Prefix is the path of a [Handler].
const Prefix = "/logs/"

// Options tune a [Handler]. The zero value serves the files of /var/log, as a kubelet does by default.
type Options struct {
	Dir   string // that is served; empty means DefaultDir. It need not exist yet
	Query bool   // answers queries (enableSystemLogQuery)
	// FollowLinks is the kubelet's way: a path may lead out of Dir by links. Queries never do.
	FollowLinks bool

	Journal   string        // the program that is asked about services; empty means DefaultJournal, of PATH
	Timeout   time.Duration // for a query about services; zero means DefaultTimeout
	MaxOutput int64         // bytes of the answer to such a query; zero means DefaultMaxOutput
	MaxRuns   int           // queries about services at a time; zero means DefaultMaxRuns

	Logger *slog.Logger // nil discards
}

// Handler serves logs under [Prefix]. Make one with [New].
type Handler struct {
	o    Options
	free chan struct{} // holds a token for each query about services that may begin
}

var _ http.Handler = (*Handler)(nil)

// New returns a handler, and looks at no file. The error says which option is invalid.
func New(o Options) (*Handler, error) {
	if o.Timeout < 0 || o.MaxOutput < 0 || o.MaxRuns < 0 {
		return nil, fmt.Errorf("nodelogs: New: Options: Timeout %s, MaxOutput %d, MaxRuns %d: must not be negative",
			o.Timeout, o.MaxOutput, o.MaxRuns)
	}
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Journal == "" {
		o.Journal = DefaultJournal
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = DefaultMaxOutput
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = DefaultMaxRuns
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{o: o, free: make(chan struct{}, o.MaxRuns)}
	for range o.MaxRuns {
		h.free <- struct{}{}
	}
	return h, nil
}

// ServeHTTP serves a file, a directory, or the answer to a query.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.StripPrefix(Prefix, http.HandlerFunc(h.serve)).ServeHTTP(w, r)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	if !h.o.Query {
		h.files(w, r, h.o.FollowLinks)
		return
	}
	q, failures := Parse(r.URL.Query())
	switch {
	case len(failures) > 0:
		http.Error(w, failures.ToAggregate().Error(), http.StatusBadRequest)
		return
	case q == nil:
		h.files(w, r, h.o.FollowLinks)
		return
	case r.URL.Path != "" && r.URL.Path != "/":
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if failures := q.Validate(h.stat); len(failures) > 0 {
		http.Error(w, failures.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.Services) > 0 {
		h.services(w, r, q)
		return
	}
	r.URL.Path = filepath.ToSlash(q.Files[0])
	h.files(w, r, false)
}

// files serves the directory.
func (h *Handler) files(w http.ResponseWriter, r *http.Request, followLinks bool) {
	if followLinks {
		http.FileServer(http.Dir(h.o.Dir)).ServeHTTP(w, r)
		return
	}
	t, err := openTree(h.o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	case err != nil:
		h.o.Logger.Warn("directory of logs cannot be read", "error", err)
		http.Error(w, "500 Internal Server Error", http.StatusInternalServerError)
		return
	}
	defer t.close()
	http.FileServer(t).ServeHTTP(w, r)
}

func (h *Handler) stat(name string) error {
	t, err := openTree(h.o.Dir)
	if err != nil {
		return err
	}
	defer t.close()
	return t.stat(name)
}

// services answers a query about services.
func (h *Handler) services(w http.ResponseWriter, r *http.Request, q *Query) {
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	var out io.Writer = w
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		gz, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			fmt.Fprintf(w, "\nfailed to get gzip writer: %v\n", err)
			return
		}
		defer gz.Close()
		out = gz
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.o.Timeout)
	defer cancel()
	select {
	case <-h.free:
		defer func() { h.free <- struct{}{} }()
	case <-ctx.Done():
		fmt.Fprintf(out, "\nerror: %d other queries are under way\n", h.o.MaxRuns)
		return
	}
	h.answer(ctx, &limitedWriter{w: out, left: h.o.MaxOutput}, q)
}

// limitedWriter takes so many bytes, and then says that there were more.
type limitedWriter struct {
	w    io.Writer
	left int64
}

var errTooMuch = errors.New("the answer is too large")

// Write writes what there is room for.
func (l *limitedWriter) Write(p []byte) (int, error) {
	if l.left < 0 {
		return 0, errTooMuch
	}
	if int64(len(p)) <= l.left {
		l.left -= int64(len(p))
		return l.w.Write(p)
	}
	n, err := l.w.Write(p[:l.left])
	l.left = -1
	if err == nil {
		_, _ = io.WriteString(l.w, "\nerror: "+errTooMuch.Error()+"\n")
		err = errTooMuch
	}
	return n, err
}

// candidates returns where the log of a service may be.
func candidates(service string) [3]string {
	return [3]string{service, service + ".log", strings.Join([]string{service, service + ".log"}, "/")}
}
