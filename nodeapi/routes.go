// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"net/http"
)

// Path patterns that name a pod or a container.
const (
	podPath          = "{namespace}/{pod}"
	podUIDPath       = podPath + "/{uid}"
	containerPath    = podPath + "/{container}"
	containerUIDPath = podUIDPath + "/{container}"
)

// addCommonRoutes adds the paths that the kubelet serves on both of its ports, the main port and the read-only port.
func (s *Server) addCommonRoutes(r *router) {
	r.addMetricPaths("healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource")
	s.addHealthChecks(r, s.allChecks())
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
			r.addHandler(page.path, s.withStallTimeout(page.handler))
		}
	}
	if s.o.Pods != nil {
		r.addRoot("/pods")
		r.addRoute("/pods", jsonType, s.routeWithStallTimeout(s.servePods), http.MethodGet)
	}
	if s.o.Summary != nil {
		r.addRoot("/stats/")
		r.addRoute("/stats/summary", jsonType, s.routeWithStallTimeout(s.serveSummary), http.MethodGet, http.MethodPost)
	}
}

// addDebugRoutes adds the paths that the kubelet serves only on its main port, and only if enableDebuggingHandlers is true.
func (s *Server) addDebugRoutes(r *router) {
	s.addMachineRoutes(r)
	ofPods := s.o.Pods != nil && s.o.Runtime != nil
	if s.o.Execer != nil && ofPods {
		r.addMetricPaths("run")
		r.addRoot("/run")
		r.addRoute("/run/"+containerPath, "", s.longRunning(s.serveRun), http.MethodPost)
		r.addRoute("/run/"+containerUIDPath, "", s.longRunning(s.serveRun), http.MethodPost)
	}
	if s.o.Streams != nil {
		s.addSessionRoutes(r)
	}
	if ofPods {
		r.addMetricPaths("containerLogs")
		r.addRoot("/containerLogs")
		r.addRoute("/containerLogs/"+containerPath, "", s.longRunning(s.serveLogs), http.MethodGet)
	}
	if s.o.Settings != nil {
		r.addMetricPaths("configz")
		r.addHandler("/configz", s.withStallTimeout(http.HandlerFunc(s.serveSettings)))
	}
	if s.o.Runtime != nil {
		r.addMetricPaths("runningpods")
		r.addRoot("/runningpods/")
		r.addRoute("/runningpods/", jsonType, s.routeWithStallTimeout(s.serveRunningPods), http.MethodGet)
	}
	if s.o.Checkpointer != nil {
		r.addMetricPaths("checkpoint")
		r.addRoot("/checkpoint/")
		r.addRoute("/checkpoint/"+containerPath, jsonType, s.longRunning(s.serveCheckpoint), http.MethodPost)
	}
	if s.o.Flags != nil {
		r.addMetricPaths("flagz")
		r.addHandler("/flagz", s.withStallTimeout(http.HandlerFunc(s.serveFlags)))
	}
	r.addMetricPaths("statusz")
	paths := uniqueRoots(r.paths)
	r.addHandler("/statusz", s.withStallTimeout(s.serveStatus(paths)))
}

// addMachineRoutes adds the paths for log files of the machine, profiles and the log level. Disabled paths respond with 405.
func (s *Server) addMachineRoutes(r *router) {
	r.addMetricPaths("logs", "debug")
	if s.o.NodeLogs != nil {
		r.addRoot("/logs/")
		serve := s.longRunning(func(w http.ResponseWriter, req *http.Request, _ params) { s.o.NodeLogs.ServeHTTP(w, req) })
		r.addRoute("/logs/", "", serve, http.MethodGet)
		r.addRoute("/logs/{path:*}", "", serve, http.MethodGet)
	} else {
		r.addHandler("/logs/", disabledHandler("logs endpoint is disabled."))
	}
	if s.o.Profiling {
		r.addRoot("/debug/pprof/")
		r.addRoute("/debug/pprof/{name:*}", "", s.longRunning(serveProfile), http.MethodGet)
	} else {
		r.addHandler("/debug/pprof/", disabledHandler("profiling endpoint is disabled."))
	}
	if s.o.LogLevel != nil {
		r.addHandler("/debug/flags/v", s.withStallTimeout(http.HandlerFunc(s.serveLevel)))
	} else {
		r.addHandler("/debug/flags/v", disabledHandler("flags endpoint is disabled."))
	}
}

// addSessionRoutes adds the paths exec, attach and portForward. It sets no stall timeout, because sessions have their own.
func (s *Server) addSessionRoutes(r *router) {
	r.addMetricPaths("exec", "attach", "portForward")
	both := []string{http.MethodGet, http.MethodPost}
	r.addRoot("/exec")
	r.addRoute("/exec/"+containerPath, "", s.cancelOnStop(s.serveExec), both...)
	r.addRoute("/exec/"+containerUIDPath, "", s.cancelOnStop(s.serveExec), both...)
	r.addRoot("/attach")
	r.addRoute("/attach/"+containerPath, "", s.cancelOnStop(s.serveAttach), both...)
	r.addRoute("/attach/"+containerUIDPath, "", s.cancelOnStop(s.serveAttach), both...)
	r.addRoot("/portForward")
	r.addRoute("/portForward/"+podPath, "", s.cancelOnStop(s.servePortForward), both...)
	r.addRoute("/portForward/"+podUIDPath, "", s.cancelOnStop(s.servePortForward), both...)
}

// addDisabledRoutes adds the paths that respond with 405 when addDebugRoutes is not called, such as /exec/ and
// /containerLogs/.
func (s *Server) addDisabledRoutes(r *router) {
	r.addMetricPaths("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "pprof", "logs")
	for _, path := range []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/debug/pprof/", "/logs/"} {
		r.addHandler(path, disabledHandler("Debug endpoints are disabled."))
	}
}

func disabledHandler(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, why, http.StatusMethodNotAllowed) })
}
