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

// Server has the handlers of the API of a node. Make one with [New]. Its methods may be called from any goroutine.
type Server struct {
	o         Options
	inspector cri.Inspector // nil: a snapshot has to do
	podLister cri.PodLister // nil: a snapshot has to do
	long      longRequests
	guard     runonce.Guard
	started   time.Time
	encoded   encodedPods

	logWatcher logs.Watcher // of all who follow a log

	all, readOnly, healthz http.Handler
}

// New returns a server, and listens nowhere. The error says which option is missing or invalid.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("nodeapi: New: Options: %w", err)
	}
	o.complete()
	s := &Server{o: o, started: time.Now()}
	s.inspector, _ = o.Runtime.(cri.Inspector)
	s.podLister, _ = o.Runtime.(cri.PodLister)

	protect := func(h http.Handler) http.Handler { return known(h) }
	if o.Access != nil {
		protect = func(h http.Handler) http.Handler { return o.Access.Handler(known(h)) }
	}
	all, readOnly, healthz := newRouter(protect), newRouter(known), newRouter(known)
	s.common(all)
	if o.NoDebugging {
		s.withoutDebugging(all)
	} else {
		s.debugging(all)
	}
	s.common(readOnly)
	s.withoutDebugging(readOnly)
	s.checks(healthz, nil)
	s.all, s.readOnly = s.observed(all, "readwrite"), s.observed(readOnly, "readonly")
	s.healthz = s.observed(healthz, "")
	return s, nil
}

// Handler returns the handler of all paths, which are protected by Options.Access: the kubelet's port 10250.
func (s *Server) Handler() http.Handler { return s.all }

// ReadOnly returns the handler of what the kubelet serves to everybody on its read-only port, 10255 once: health, metrics, pods and
// summaries. It authenticates nobody.
func (s *Server) ReadOnly() http.Handler { return s.readOnly }

// Healthz returns the handler of /healthz and /healthz/ping alone, which answers as long as the process does: the kubelet's port 10248.
func (s *Server) Healthz() http.Handler { return s.healthz }

// observed reports requests to the hooks, and bounds the time for their bodies.
func (s *Server) observed(r *router, serverType string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if serverType != "" {
			labels := r.labels(req, serverType)
			if call := s.o.Hooks.RequestReceived; call != nil {
				call(labels)
			}
			if call := s.o.Hooks.RequestCompleted; call != nil {
				start := time.Now()
				defer func() { call(labels, time.Since(start)) }()
			}
		}
		s.boundBody(w, req)
		r.mux.ServeHTTP(w, req)
	})
}

// labels returns what metrics tell a request apart by. Source: getMetricBucket in pkg/kubelet/server/server.go.
func (r *router) labels(req *http.Request, serverType string) Request {
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
	if r.bucket[name] {
		l.Path = name
	}
	switch l.Path {
	case "exec", "attach", "portforward", "debug": // as they are in the kubelet, where portForward is none of them
		l.LongRunning = true
	}
	return l
}
