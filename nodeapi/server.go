// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Server has the HTTP handlers of the kubelet's API. Create it with [New]. Its methods may be called from any goroutine.
type Server struct {
	o            Options
	inspector    cri.Inspector // nil: a full list is used
	podLister    cri.PodLister // nil: a full list is used
	longRequests longRequests
	guard        runonce.Guard
	started      time.Time
	encoder      podEncoder

	logWatcher logs.Watcher // shared by all requests that follow a log

	all, readOnly, healthz http.Handler
}

// New returns a Server for opts. It does not listen; [Server.Run] serves the endpoints. The error names the missing or invalid
// option.
func New(opts Options) (*Server, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("nodeapi: New: Options: %w", err)
	}
	opts.setDefaults()
	s := &Server{o: opts, started: time.Now()}
	s.inspector, _ = opts.Runtime.(cri.Inspector)
	s.podLister, _ = opts.Runtime.(cri.PodLister)

	protect := func(h http.Handler) http.Handler { return authenticatedHandler(h) }
	if opts.Access != nil {
		protect = func(h http.Handler) http.Handler { return opts.Access.Handler(authenticatedHandler(h)) }
	}
	all, readOnly, healthz := newRouter(protect), newRouter(authenticatedHandler), newRouter(authenticatedHandler)
	s.addCommonRoutes(all)
	if opts.NoDebugging {
		s.addDisabledRoutes(all)
	} else {
		s.addDebugRoutes(all)
	}
	s.addCommonRoutes(readOnly)
	s.addDisabledRoutes(readOnly)
	s.addHealthChecks(healthz, nil)
	s.all, s.readOnly = s.withHooks(all, "readwrite"), s.withHooks(readOnly, "readonly")
	s.healthz = s.withHooks(healthz, "")
	return s, nil
}

// Handler returns the handler for the kubelet's port 10250. It serves all paths. Each request must be authorized by
// Options.Access.
func (s *Server) Handler() http.Handler { return s.all }

// ReadOnly returns the handler for the kubelet's former read-only port 10255. It serves health, metrics, pods and summaries,
// without authentication.
func (s *Server) ReadOnly() http.Handler { return s.readOnly }

// Healthz returns the handler for the kubelet's port 10248. It serves /healthz and /healthz/ping, which succeed as long as the
// process runs.
func (s *Server) Healthz() http.Handler { return s.healthz }

// withHooks returns the handler of r with limited request bodies. It calls Options.Hooks with this server type, unless it is
// empty.
func (s *Server) withHooks(r *router, serverType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if serverType != "" {
			labels := r.metricLabels(req, serverType)
			if call := s.o.Hooks.RequestReceived; call != nil {
				call(labels)
			}
			if call := s.o.Hooks.RequestCompleted; call != nil {
				start := time.Now()
				defer func() { call(labels, time.Since(start)) }()
			}
		}
		s.limitBody(w, req)
		r.mux.ServeHTTP(w, req)
	})
}

// metricLabels returns the values of the metric labels for a request. serverType is the value of the label server_type.
// Source: getMetricBucket in pkg/kubelet/server/server.go.
func (r *router) metricLabels(req *http.Request, serverType string) Request {
	l := Request{Method: "other", Path: "other", ServerType: serverType}
	switch req.Method {
	case http.MethodOptions, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodTrace,
		http.MethodConnect:
		l.Method = req.Method
	}
	parts := strings.SplitN(strings.TrimPrefix(req.URL.Path, "/"), "/", 3)
	name := parts[0]
	if name == "metrics" && len(parts) > 1 {
		name += "/" + parts[1]
	}
	if r.metricPaths[name] {
		l.Path = name
	}
	switch l.Path {
	case "exec", "attach", "portforward", "debug": // as in the kubelet, whose list lacks portForward
		l.LongRunning = true
	}
	return l
}
