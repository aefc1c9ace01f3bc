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

// nodeLogsPath is the prefix of the URL paths that a [NodeLogs] serves.
const nodeLogsPath = "/logs/"

// NodeLogsOptions configures a [NodeLogs]. The zero value serves the files of /var/log, as a kubelet does by default.
type NodeLogsOptions struct {
	Dir          string // directory of the log files; empty means /var/log. It may be created later
	AllowQueries bool   // accept queries (enableSystemLogQuery)
	// FollowLinks allows paths that lead out of Dir by symbolic links, as in the kubelet. Queries never follow them.
	FollowLinks bool

	Journal    string        // program that reads the systemd journal; empty means journalctl, found in PATH
	Timeout    time.Duration // of a query about services; zero means 30 s, as in the kubelet
	MaxOutput  int64         // bytes of the response to a query about services; zero means 1 GiB
	MaxQueries int           // concurrent queries about services; zero means 4

	Logger *slog.Logger // nil discards
}

// NodeLogs is the handler for Options.NodeLogs: it serves the log files of the machine, and queries of them and of the systemd
// journal, under /logs/. Create it with [NewNodeLogs]. It is safe for concurrent use.
//
// A name cannot lead out of the directory, even if a symbolic link in its path is replaced during the request: files are opened
// through an [os.Root]. Links within the directory are followed, also absolute ones, such as those of a kubelet in
// /var/log/containers. Only regular files and directories are opened, because a pipe could block.
//
// An unreadable query is answered with 400, an invalid one with 406 and the kubelet's text, and a link that leads out with 403. A
// later error is a line of the response.
type NodeLogs struct {
	o          NodeLogsOptions
	querySlots chan struct{} // holds a token per additional query about services
}

var _ http.Handler = (*NodeLogs)(nil)

// NewNodeLogs returns a handler for opts. It opens no file. The error names the invalid options.
func NewNodeLogs(opts NodeLogsOptions) (*NodeLogs, error) {
	if opts.Timeout < 0 || opts.MaxOutput < 0 || opts.MaxQueries < 0 {
		return nil, fmt.Errorf("nodeapi: NewNodeLogs: Options: Timeout %s, MaxOutput %d, MaxQueries %d: must not be negative",
			opts.Timeout, opts.MaxOutput, opts.MaxQueries)
	}
	opts.Dir = cmp.Or(opts.Dir, "/var/log")
	opts.Journal = cmp.Or(opts.Journal, "journalctl")
	opts.Timeout = cmp.Or(opts.Timeout, 30*time.Second)
	opts.MaxOutput = cmp.Or(opts.MaxOutput, 1<<30)
	opts.MaxQueries = cmp.Or(opts.MaxQueries, 4)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &NodeLogs{o: opts, querySlots: make(chan struct{}, opts.MaxQueries)}
	for range opts.MaxQueries {
		h.querySlots <- struct{}{}
	}
	return h, nil
}

// ServeHTTP responds with a log file, a directory listing, or the result of a log query.
func (h *NodeLogs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.StripPrefix(nodeLogsPath, http.HandlerFunc(h.serveRequest)).ServeHTTP(w, r)
}

func (h *NodeLogs) serveRequest(w http.ResponseWriter, r *http.Request) {
	if !h.o.AllowQueries {
		h.serveFiles(w, r, h.o.FollowLinks)
		return
	}
	q, failures := logquery.Parse(r.URL.Query())
	switch {
	case len(failures) > 0:
		http.Error(w, failures.ToAggregate().Error(), http.StatusBadRequest)
		return
	case q == nil:
		h.serveFiles(w, r, h.o.FollowLinks)
		return
	case r.URL.Path != "" && r.URL.Path != "/":
		http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		return
	}
	if failures := q.Validate(h.checkFile); len(failures) > 0 {
		http.Error(w, failures.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	if len(q.Services) > 0 {
		h.serveServiceLogs(w, r, q)
		return
	}
	r.URL.Path = filepath.ToSlash(q.Files[0])
	h.serveFiles(w, r, false)
}

// serveFiles responds with a file or a directory listing of the log directory. If followLinks is true, symbolic links may
// lead out of the directory.
func (h *NodeLogs) serveFiles(w http.ResponseWriter, r *http.Request, followLinks bool) {
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

func (h *NodeLogs) checkFile(name string) error {
	t, err := openLogTree(h.o.Dir)
	if err != nil {
		return err
	}
	defer t.close()
	return t.checkFile(name)
}

// serveServiceLogs responds to a query about services.
func (h *NodeLogs) serveServiceLogs(w http.ResponseWriter, r *http.Request, query *logquery.Query) {
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
	case <-h.querySlots:
		defer func() { h.querySlots <- struct{}{} }()
	case <-ctx.Done():
		fmt.Fprintf(out, "\nerror: %d other queries are under way\n", h.o.MaxQueries)
		return
	}
	h.writeServiceLogs(ctx, &limitedWriter{w: out, remaining: h.o.MaxOutput}, query)
}

// limitedWriter writes at most a limited number of bytes to w. At the limit it writes a line about the truncation.
type limitedWriter struct {
	w         io.Writer
	remaining int64
}

var errTooMuch = errors.New("the answer is too large")

// Write writes p to the underlying writer. If p exceeds the remaining limit, it writes only the part within the limit and a
// line about the truncation. It then returns an error.
func (l *limitedWriter) Write(p []byte) (int, error) {
	if l.remaining < 0 {
		return 0, errTooMuch
	}
	if int64(len(p)) <= l.remaining {
		l.remaining -= int64(len(p))
		return l.w.Write(p)
	}
	n, err := l.w.Write(p[:l.remaining])
	l.remaining = -1
	if err == nil {
		_, _ = io.WriteString(l.w, "\nerror: "+errTooMuch.Error()+"\n")
		err = errTooMuch
	}
	return n, err
}

// serviceLogPaths returns the possible paths of a service's log file, relative to the log directory.
func serviceLogPaths(service string) [3]string {
	return [3]string{service, service + ".log", strings.Join([]string{service, service + ".log"}, "/")}
}
