// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"net/http"
)

// Parts of the paths of one container.
const (
	podPath          = "{namespace}/{pod}"
	podUIDPath       = podPath + "/{uid}"
	containerPath    = podPath + "/{container}"
	containerUIDPath = podUIDPath + "/{container}"
)

// common adds what the kubelet serves on both of its ports.
func (s *Server) common(r *router) {
	r.buckets("healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource")
	s.checks(r, s.allChecks())
	for _, page := range []struct {
		path    string
		handler http.Handler
	}{
		{"/metrics/slis", s.o.Metrics.SLIs},
		{"/metrics", s.o.Metrics.All},
		{"/metrics/cadvisor", s.o.Metrics.CAdvisor},
		{"/metrics/resource", s.o.Metrics.Resource},
		{"/metrics/probes", s.o.Metrics.Probes},
	} {
		if page.handler != nil {
			r.handle(page.path, s.unstalled(page.handler))
		}
	}
	if s.o.Pods != nil {
		r.service("/pods")
		r.add("/pods", jsonType, s.bounded(s.servePods), http.MethodGet)
	}
	if s.o.Summary != nil {
		r.service("/stats/")
		r.add("/stats/summary", jsonType, s.bounded(s.serveSummary), http.MethodGet, http.MethodPost)
	}
}

// debugging adds the rest: what the kubelet serves to those who may, unless enableDebuggingHandlers is false.
func (s *Server) debugging(r *router) {
	s.machine(r)
	ofPods := s.o.Pods != nil && s.o.Runtime != nil
	if s.o.Execer != nil && ofPods {
		r.buckets("run")
		r.service("/run")
		r.add("/run/"+containerPath, "", s.lasting(s.serveRun), http.MethodPost)
		r.add("/run/"+containerUIDPath, "", s.lasting(s.serveRun), http.MethodPost)
	}
	if s.o.Streams != nil {
		s.sessions(r)
	}
	if ofPods {
		r.buckets("containerLogs")
		r.service("/containerLogs")
		r.add("/containerLogs/"+containerPath, "", s.lasting(s.serveLogs), http.MethodGet)
	}
	if s.o.Settings != nil {
		r.buckets("configz")
		r.handle("/configz", s.unstalled(http.HandlerFunc(s.serveSettings)))
	}
	if s.o.Runtime != nil {
		r.buckets("runningpods")
		r.service("/runningpods/")
		r.add("/runningpods/", jsonType, s.bounded(s.serveRunningPods), http.MethodGet)
	}
	if s.o.Checkpointer != nil {
		r.buckets("checkpoint")
		r.service("/checkpoint/")
		r.add("/checkpoint/"+containerPath, jsonType, s.lasting(s.serveCheckpoint), http.MethodPost)
	}
	if s.o.Flags != nil {
		r.buckets("flagz")
		r.handle("/flagz", s.unstalled(http.HandlerFunc(s.serveFlags)))
	}
	r.buckets("statusz")
	paths := firstElements(r.paths)
	r.handle("/statusz", s.unstalled(s.serveStatus(paths)))
}

// machine adds what is about the machine and the process, which answers 405 where it is switched off.
func (s *Server) machine(r *router) {
	r.buckets("logs", "debug")
	if s.o.NodeLogs != nil {
		r.service("/logs/")
		serve := s.lasting(func(w http.ResponseWriter, req *http.Request, _ params) { s.o.NodeLogs.ServeHTTP(w, req) })
		r.add("/logs/", "", serve, http.MethodGet)
		r.add("/logs/{path:*}", "", serve, http.MethodGet)
	} else {
		r.handle("/logs/", switchedOff("logs endpoint is disabled."))
	}
	if s.o.Profiling {
		r.service("/debug/pprof/")
		r.add("/debug/pprof/{name:*}", "", s.lasting(serveProfile), http.MethodGet)
	} else {
		r.handle("/debug/pprof/", switchedOff("profiling endpoint is disabled."))
	}
	if s.o.LogLevel != nil {
		r.handle("/debug/flags/v", s.unstalled(http.HandlerFunc(s.serveLevel)))
	} else {
		r.handle("/debug/flags/v", switchedOff("flags endpoint is disabled."))
	}
}

// sessions adds what the client and a container talk by. Its writers are not wrapped: the connection is taken over.
func (s *Server) sessions(r *router) {
	r.buckets("exec", "attach", "portForward")
	both := []string{http.MethodGet, http.MethodPost}
	r.service("/exec")
	r.add("/exec/"+containerPath, "", s.ending(s.serveExec), both...)
	r.add("/exec/"+containerUIDPath, "", s.ending(s.serveExec), both...)
	r.service("/attach")
	r.add("/attach/"+containerPath, "", s.ending(s.serveAttach), both...)
	r.add("/attach/"+containerUIDPath, "", s.ending(s.serveAttach), both...)
	r.service("/portForward")
	r.add("/portForward/"+podPath, "", s.ending(s.servePortForward), both...)
	r.add("/portForward/"+podUIDPath, "", s.ending(s.servePortForward), both...)
}

// withoutDebugging adds answers for those who ask for the rest where it is not served.
func (s *Server) withoutDebugging(r *router) {
	r.buckets("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "pprof", "logs")
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		r.handle(path, switchedOff("Debug endpoints are disabled."))
	}
}

func switchedOff(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusMethodNotAllowed) })
}
