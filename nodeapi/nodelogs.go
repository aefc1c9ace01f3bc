// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"cmp"
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

	"github.com/seed81659283/nodeagent/internal/logquery"
)

// nodeLogsPath is the path of a [NodeLogs].
const nodeLogsPath = "/logs/"

// NodeLogsOptions tune a [NodeLogs]. The zero value serves the files of /var/log, as a kubelet does by default.
type NodeLogsOptions struct {
	Dir          string // directory of the log files; empty means /var/log. It need not exist yet
	AllowQueries bool   // accept queries (enableSystemLogQuery)
	// FollowLinks is the kubelet's way: a path may lead out of Dir by links. Queries never do.
	FollowLinks bool

	Journal    string        // program that reads the journal of services; empty means journalctl, of PATH
	Timeout    time.Duration // of a query about services; zero means 30 s, as in the kubelet
	MaxOutput  int64         // bytes of the response to such a query; zero means 1 GiB
	MaxQueries int           // queries about services at a time; zero means 4

	Logger *slog.Logger // nil discards
}

// NodeLogs serves the log files of the machine, and queries of them and of its journal, under /logs/: [Options].NodeLogs. Make one with
// [NewNodeLogs]. It may be called from many goroutines.
//
// No name leads out of the directory, even if a link on its path is swapped meanwhile: files are opened by an [os.Root]. Links within the
// directory are followed, also absolute ones, such as those that a kubelet creates in /var/log/containers. Only regular files and directories
// are opened, so that a pipe blocks no request.
//
// An unreadable query gets 400, an invalid one 406, with the kubelet's words, and a link that leads out 403. A later error is a line of the
// response.
type NodeLogs struct {
	o    NodeLogsOptions
	free chan struct{} // holds a token for each query about services that may begin
}

var _ http.Handler = (*NodeLogs)(nil)

// NewNodeLogs returns a handler, and opens no file. The error names the options that are invalid.
func NewNodeLogs(o NodeLogsOptions) (*NodeLogs, error) {
	if o.Timeout < 0 || o.MaxOutput < 0 || o.MaxQueries < 0 {
		return nil, fmt.Errorf("nodeapi: NewNodeLogs: Options: Timeout %s, MaxOutput %d, MaxQueries %d: must not be negative",
			o.Timeout, o.MaxOutput, o.MaxQueries)
	}
	o.Dir = cmp.Or(o.Dir, "/var/log")
	o.Journal = cmp.Or(o.Journal, "journalctl")
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxOutput = cmp.Or(o.MaxOutput, 1<<30)
	o.MaxQueries = cmp.Or(o.MaxQueries, 4)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &NodeLogs{o: o, free: make(chan struct{}, o.MaxQueries)}
	for range o.MaxQueries {
		h.free <- struct{}{}
	}
	return h, nil
}

// ServeHTTP serves a file, a directory, or the response to a query.
func (h *NodeLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.StripPrefix(nodeLogsPath, http.HandlerFunc(h.serve)).ServeHTTP(w, r)
}

func (h *NodeLogs) serve(w http.ResponseWriter, r *http.Request) {
	if !h.o.AllowQueries {
		h.files(w, r, h.o.FollowLinks)
		return
	}
	q, failures := logquery.Parse(r.URL.Query())
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
func (h *NodeLogs) files(w http.ResponseWriter, r *http.Request, followLinks bool) {
	if followLinks {
		http.FileServer(http.Dir(h.o.Dir)).ServeHTTP(w, r)
		return
	}
	t, err := openLogTree(h.o.Dir)
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

func (h *NodeLogs) stat(name string) error {
	t, err := openLogTree(h.o.Dir)
	if err != nil {
		return err
	}
	defer t.close()
	return t.stat(name)
}

// services answers a query about services.
func (h *NodeLogs) services(w http.ResponseWriter, r *http.Request, q *logquery.Query) {
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
		fmt.Fprintf(out, "\nerror: %d other queries are under way\n", h.o.MaxQueries)
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
